"""Secrets of commands: in files, never on the command line."""

from rmqtool.errors import BadValue

_MOST = 4096  # bytes of a file


def read_secret(path: str, what: str) -> str:
    """The first line of a file.

    Args:
        what: names the file in errors, such as "a file with a password".

    Raises:
        BadValue: the line is empty, or not UTF-8.
        UnreadableStore: the file cannot be read.
    """
    from rmqtool.remoting.files import read_small

    try:
        text = read_small(path, _MOST, what).decode()
    except UnicodeDecodeError:
        raise BadValue(f"{path}: not UTF-8") from None
    line = text.partition("\n")[0].rstrip("\r")
    if not line:
        raise BadValue(f"{path}: its first line is empty")
    return line
