"""What a person does about a file that a broker refuses to load."""

import os
from typing import NamedTuple


class WayOn(NamedTuple):
    """One thing to do.

    Attributes:
        does: what it does, or what the person does.
        command: words of a command line; empty where a person must act.
    """

    does: str
    command: tuple[str, ...] = ()


def way_on(path: str, size: int | None, wanted: int, *, last: bool) -> WayOn:
    """What to do about one file of a directory in which all have one length.

    Args:
        size: bytes; None where the file does not belong there at all.
        wanted: bytes that a file should have.
        last: it is the last of its directory.
    """
    # -n: a file of this name that is there already is not replaced
    away = ("mv", "-n", path, os.path.dirname(os.path.dirname(path)) or ".")
    if size is None:
        return WayOn("moves what does not belong there out of the way", away)
    if not size and last:
        return WayOn("moves the empty file out of the way", away)
    if size < wanted and last:
        return WayOn("restores the length of the file with zeros", ("truncate", "-s", str(wanted), path))
    if size < wanted:
        return WayOn(
            f"copy {path} anew from where it was whole; without such a copy rmqtool salvage keeps every message that "
            "is intact"
        )
    return WayOn(f"{path} is longer than the others: name the true file size with --broker-conf, or copy it anew")
