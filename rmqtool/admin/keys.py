"""Credentials for brokers with access control, from a file or the environment."""

import os

import yaml

from rmqtool.errors import BadValue
from rmqtool.remoting.files import read_small
from rmqtool.remoting.signing import Credentials

ACCESS_KEY, SECRET_KEY = "RMQTOOL_ACCESS_KEY", "RMQTOOL_SECRET_KEY"
_MOST = 1 << 16  # bytes; maximum size of a file with credentials


def credentials(file: str | None, variables: tuple[str, str] = (ACCESS_KEY, SECRET_KEY)) -> Credentials | None:
    """The credentials in a file like mqadmin's ``tools.yml``, or else in the environment, if any.

    Errors never quote the file or a variable.

    Args:
        variables: names of the environment variables with the access key and the secret key.

    Raises:
        BadValue: a key is missing, or the file is invalid.
        UnreadableStore: the file cannot be read.
    """
    if file is None:
        access, secret = (os.environ.get(name) for name in variables)
        if not access and not secret:
            return None
        if not access or not secret:
            raise BadValue(f"{variables[0]} and {variables[1]}: one is set without the other")
        return Credentials(access, secret)
    fields = _read(file)
    names = ("accessKey", "secretKey")
    missing = [name for name in names if not isinstance(fields.get(name), str) or not fields[name]]
    if missing:
        raise BadValue(f"{file}: {' and '.join(missing)}: not given; a file like mqadmin's tools.yml is wanted")
    token = fields.get("securityToken")
    access, secret = (str(fields[name]) for name in names)
    return Credentials(access, secret, None if token is None else str(token))


def _read(file: str) -> dict[str, object]:
    data = read_small(file, _MOST, "a file of keys")
    try:
        content = yaml.load(data.decode("utf-8"), _TextLoader)
    except (yaml.YAMLError, ValueError, RecursionError) as err:
        mark = getattr(err, "problem_mark", None)
        where = f"{file}:{mark.line + 1}" if mark is not None else file
        raise BadValue(f"{where}: not YAML") from None
    if not isinstance(content, dict):
        raise BadValue(f"{file}: not a file like mqadmin's tools.yml: accessKey and secretKey, a line each")
    return content


class _TextLoader(yaml.BaseLoader):
    """Reads every scalar as text, so a key like 0123 or 1e5 stays as it is. No aliases."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("aliases are not taken")
        return super().compose_node(parent, index)
