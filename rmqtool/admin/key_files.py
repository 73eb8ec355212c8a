"""Files with credentials, in the form of mqadmin's ``tools.yml``."""

import yaml

from rmqtool.errors import BadValue
from rmqtool.remoting.files import read_small

_MOST = 1 << 16  # bytes; maximum size of a file with credentials


def read_fields(file: str) -> dict[str, object]:
    """The fields of a file; errors never quote it.

    Raises:
        BadValue: it is not YAML, or has no fields.
        UnreadableStore: it cannot be read.
    """
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
