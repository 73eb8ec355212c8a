"""Small files named by a user: settings and keys."""

import os

from rmqtool.errors import BadValue, UnreadableStore


def read_small(path: str, most: int, what: str) -> bytes:
    """Read a whole file.

    Args:
        most: most bytes of such a file.
        what: what it should be.

    Raises:
        UnreadableStore: it cannot be read.
        BadValue: it is too long.
    """
    try:
        with open(path, "rb") as file:
            data = file.read(most + 1)
    except OSError as err:
        raise UnreadableStore(f"{path}: {os.strerror(err.errno or 0)}") from None
    if len(data) > most:
        raise BadValue(f"{path}: larger than {most} bytes: not {what}")
    return data
