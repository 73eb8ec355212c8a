"""Make items in a thread while earlier ones are used; worth it where both sides spend their time in compiled code."""

from collections.abc import Generator
from queue import Empty, Queue
from threading import Event, Thread
from typing import Any, TypeVar

T = TypeVar("T")
R = TypeVar("R")
_ITEM, _END, _ERROR = range(3)
_PATIENCE = 0.05  # seconds between two looks at a thread that is ending


def ahead(items: Generator[T, None, R], depth: int = 2) -> Generator[T, None, R]:
    """The same items and the same end, made up to ``depth`` items early by a thread of their own.

    What the items raise is raised here. When nobody wants more of them, the thread ends.
    """
    ready: Queue[tuple[int, Any]] = Queue(depth)
    unwanted = Event()
    thread = Thread(target=_make, args=(items, ready, unwanted), daemon=True)
    thread.start()
    kind = _ITEM
    try:
        while True:
            kind, value = ready.get()
            if kind == _ITEM:
                yield value
            elif kind == _END:
                end: R = value
                return end
            else:
                raise value
    finally:
        unwanted.set()
        if kind != _ITEM:
            thread.join()  # it has said its last
        while thread.is_alive():
            try:
                ready.get(timeout=_PATIENCE)
            except Empty:
                continue


def _make(items: Generator[Any, None, Any], ready: "Queue[tuple[int, Any]]", unwanted: Event) -> None:
    try:
        while not unwanted.is_set():
            ready.put((_ITEM, next(items)))
    except StopIteration as stop:
        ready.put((_END, stop.value))
    except BaseException as err:
        ready.put((_ERROR, err))
    finally:
        items.close()
