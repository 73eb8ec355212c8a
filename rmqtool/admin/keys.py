"""Credentials for brokers with access control, from a file or the environment."""

import os

from rmqtool.admin.target import Target
from rmqtool.errors import BadValue
from rmqtool.remoting.signing import Credentials

ACCESS_KEY, SECRET_KEY = "RMQTOOL_ACCESS_KEY", "RMQTOOL_SECRET_KEY"


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
    from rmqtool.admin.key_files import read_fields  # loads PyYAML

    fields = read_fields(file)
    names = ("accessKey", "secretKey")
    missing = [name for name in names if not isinstance(fields.get(name), str) or not fields[name]]
    if missing:
        raise BadValue(f"{file}: {' and '.join(missing)}: not given; a file like mqadmin's tools.yml is wanted")
    token = fields.get("securityToken")
    access, secret = (str(fields[name]) for name in names)
    return Credentials(access, secret, None if token is None else str(token))


def credentials_for(target: Target) -> Credentials | None:
    """The credentials that a target names, or else those in the environment, if any.

    Raises:
        BadValue: a variable that the target names is not set, or as :func:`credentials`.
        UnreadableStore: the file cannot be read.
    """
    if target.key_names is None:
        return credentials(target.acl)
    keys = credentials(None, target.key_names)
    if keys is None:
        raise BadValue(f"{target.text}: {' and '.join(target.key_names)} are not set")
    return keys
