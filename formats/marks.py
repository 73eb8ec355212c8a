"""The two marker files ``abort`` and ``lock``.

Source: org.apache.rocketmq.store.DefaultMessageStore; store-formats 1, 6.2. ``abort.bak`` has no meaning.
"""

from formats.errors import BadText

LOCK = b"lock"
_LONGEST = 20


def parse_abort(content: bytes) -> int | None:
    """Return the process id of the broker that wrote the file, or None for 4.x, which leaves it empty.

    Raises:
        BadText: the file is neither empty nor decimal digits. It still marks an unclean stop.
    """
    if not content:
        return None
    if len(content) > _LONGEST or not content.isdigit():
        raise BadText(0, "abort file is neither empty nor a process id")
    return int(content)


def is_lock(content: bytes) -> bool:
    """Return whether a lock file is as a broker leaves it; one that stopped before writing leaves it empty."""
    return content in (b"", LOCK)
