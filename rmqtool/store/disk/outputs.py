"""Files about a store that a command creates for people: outside of the store, whole, and never over anything."""

import os

from rmqtool.errors import Refused, UnreadableStore
from rmqtool.store.disk.new_files import make_file
from rmqtool.store.disk.remote import place_of


def check_output(out: str, root: str | None) -> None:
    """Refuse a place for such a file before the work for it begins.

    Args:
        root: the store's directory; None if it is of a live cluster.

    Raises:
        Refused: something is there, its directory is not there, or it lies in the store.
    """
    if os.path.lexists(out):
        raise _exists(out)
    folder = os.path.dirname(os.path.abspath(out))
    if not os.path.isdir(folder):
        raise Refused(f"{folder}: no such directory: make it first")
    if root is None:
        return
    inside = os.path.realpath(out).startswith(os.path.realpath(root) + os.sep)
    if place_of(root) is None and inside:
        raise Refused(f"{out}: lies in the store: give a place outside of it")


def write_output(out: str, data: bytes) -> None:
    """Create the file durably; it appears under its name when it is complete.

    Raises:
        Refused: something is there by now.
        UnreadableStore: it cannot be written.
    """
    try:
        made = make_file(os.path.abspath(out), data)
    except OSError as err:
        raise UnreadableStore(f"{out}: cannot be written: {os.strerror(err.errno or 0)}") from err
    if not made:
        raise _exists(out)


def _exists(out: str) -> Refused:
    return Refused(f"{out}: exists: give a name that is not taken")
