"""Whether a range of a commit log is large enough to be read by compiled code."""

from rmqtool.store.disk.remote import need
from rmqtool.store.dispatch import batch


def is_large(view: memoryview, at: int, stop: int) -> bool:
    """As :func:`rmqtool.store.dispatch.batch.is_bulk`; of a remote file, the bytes that it looks at are fetched first.

    Args:
        view: the mapped file.
        at, stop: bytes of the file; the range is [at, stop).
    """
    need(view, at, min(at + batch.BULK_BYTES, stop))
    return batch.is_bulk(view, at, stop)
