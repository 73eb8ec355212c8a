"""Stores in object storage and HDFS, identified by a URI and accessed through pyarrow's file systems.

Every process that reads looks for credentials where pyarrow does; options are part of the URI. Files are fetched in
parts (:mod:`rmqtool.analytics.remote.mirror`); nothing is ever written to the remote store.
"""

import uuid
from collections.abc import Callable, Sequence
from typing import TypeVar

from formats import checkpoint
from rmqtool.errors import Refused
from rmqtool.store.disk.remote import attach, is_uri, place_of, show_uri
from rmqtool.store.disk.segments import Segment, Segments
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import CommitLog

_LOCAL = "file:"
_T = TypeVar("_T")
_R = TypeVar("_R")


def attach_store(uri: str, listing: str = "") -> str:
    """Register a store for its URI; return the path by which it is known.

    Args:
        listing: as for :class:`~rmqtool.analytics.remote.place.Remote`; if empty, any existing listing is used.

    Raises:
        BadValue: a URI of an unknown file system.
    """
    from rmqtool.analytics.remote.place import Remote

    root = show_uri(uri)
    place = place_of(root)
    if not isinstance(place, Remote) or place.uri != uri or (listing and place.listing != listing):
        attach(root, Remote(uri, listing))
    return root


def new_listing() -> str:
    """Return an id for a new listing."""
    return uuid.uuid4().hex


def is_remote(path: str) -> bool:
    """Return whether a path is the URI of something on another machine."""
    return is_uri(path) and not path.startswith(_LOCAL)


def local_of(path: str) -> str:
    """Return the local path of a ``file:`` URI; other paths are returned unchanged."""
    if not (is_uri(path) and path.startswith(_LOCAL)):
        return path
    from rmqtool.analytics.remote.place import open_place

    return open_place(path)[1]


def resolve_store(store: str) -> str:
    """Return the argument for :class:`rmqtool.store.layout.paths.StoreLayout` for a path or URI of a store.

    Raises:
        BadValue: a URI of an unknown file system.
    """
    return attach_store(store, new_listing()) if is_remote(store) else local_of(store)


def keep_apart(out: str, root: str) -> None:
    """Reject an output inside or above a store at a URI.

    Raises:
        Refused: the output is inside or above the store.
    """
    if is_remote(out):
        place = show_uri(out)
        if f"{place}/".startswith(f"{root}/"):
            raise Refused(f"{place}: the output must not lie in the store ({root})")
        if root.startswith(f"{place}/"):
            raise Refused(f"{place}: the store ({root}) lies in it")


def each(function: Callable[[_T], _R], items: Sequence[_T], path: str) -> list[_R]:
    """Apply a function to each item; concurrently for a remote store, where most of the time is spent waiting.

    Args:
        path: path of the store.
    """
    if place_of(path) is None or len(items) < 2:
        return [function(item) for item in items]
    from concurrent.futures import ThreadPoolExecutor

    from rmqtool.analytics.remote.mirror import THREADS

    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(function, items))


def open_log(layout: StoreLayout) -> CommitLog:
    """Open the commit log of a store; for a remote one, without the zeros after its end if the end is known.

    Files are allocated at full length, and the zeros after the last record need not be fetched: a broker that closes
    its store writes the time of its last message to the checkpoint.
    """
    log = CommitLog(layout)
    if place_of(layout.root) is None or layout.aborted:
        return log
    from rmqtool.analytics.remote.place import closed_end

    end = closed_end(log, checkpoint.parse(layout.checkpoint() or b"").physic_msg_timestamp)
    if end is not None:
        number, at = end
        files = log.segments.files
        trimmed = [Segment(file.path, file.base, 0, file.mtime_ns) for file in files[number:]]
        trimmed[0].size = at
        log.segments = Segments([*files[:number], *trimmed], log.segments.foreign)
    return log
