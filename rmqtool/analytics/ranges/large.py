"""Decides whether a range of a commit log is large enough for compiled code."""

from rmqtool.store.disk.remote import need
from rmqtool.store.dispatch import batch


def is_large(view: memoryview, at: int, stop: int) -> bool:
    """As :func:`rmqtool.store.dispatch.batch.is_bulk`; fetches the bytes it inspects if the file is remote.

    Args:
        view: the mapped file.
        at, stop: range [at, stop) in the file.
    """
    need(view, at, min(at + batch.BULK_BYTES, stop))
    return batch.is_bulk(view, at, stop)
