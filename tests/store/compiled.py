"""Process small stores like large ones: with compiled code, in blocks, on several threads."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

import pytest

from rmqtool.store.disk import sparse
from rmqtool.store.dispatch import batch as dispatch
from rmqtool.store.dispatch import bulk as bulk_dispatch
from rmqtool.store.index import builder as index_builder
from rmqtool.store.queues import builder as queue_builder
from rmqtool.store.recovery import dispatcher

BLOCK = 1500  # bytes: some records


@contextmanager
def compiled_way() -> Iterator[Counter[str]]:
    """Use compiled code for everything meanwhile; yields counts by kind of work."""
    gone: Counter[str] = Counter()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dispatch, "BULK_BYTES", 64)
        patch.setattr(bulk_dispatch, "BLOCK_BYTES", BLOCK)
        patch.setattr(bulk_dispatch, "BATCH_RECORDS", 16)
        patch.setattr(dispatch, "BULK_KEYS", 1)
        # what comes with many records: queues write more than once, and look at their entries piece by piece
        patch.setattr(queue_builder, "_BUFFER", 100)
        patch.setattr(sparse, "_FIRST", 40)
        patch.setattr(dispatcher, "_MOST_HELD", 2000)
        patch.setattr(bulk_dispatch._Reader, "_find", _counted(bulk_dispatch._Reader._find, gone, "block"))
        patch.setattr(index_builder.IndexFile, "put_bulk", _counted(index_builder.IndexFile.put_bulk, gone, "keys"))
        yield gone


def _counted(function: Callable[..., Any], gone: Counter[str], what: str) -> Callable[..., Any]:
    @wraps(function)
    def counting(*args: Any) -> Any:
        gone[what] += 1
        return function(*args)

    return counting
