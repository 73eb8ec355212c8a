"""The two files whose presence is their meaning: ``abort`` and ``lock``.

Source: org.apache.rocketmq.store.DefaultMessageStore; store-formats 1, 6.2. ``abort.bak`` means nothing.
"""

from formats.errors import BadText

LOCK = b"lock"
_LONGEST = 20


def parse_abort(content: bytes) -> int | None:
    """Process id of the broker that wrote the file: None for 4.x, which leaves it empty.

    Raises:
        BadText: neither empty nor decimal digits. The file still marks an unclean stop.
    """
    if not content:
        return None
    if len(content) > _LONGEST or not content.isdigit():
        raise BadText(0, "abort file is neither empty nor a process id")
    return int(content)


def is_lock(content: bytes) -> bool:
    """Whether a lock file holds what a broker writes; a broker that stopped before writing leaves it empty."""
    return content in (b"", LOCK)
