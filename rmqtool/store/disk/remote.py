"""Stores on other machines, addressed by a URI in place of a path.

This module does not know how files are fetched: :mod:`rmqtool.analytics.remote.stores` does, and registers itself with
:func:`attach`.
"""

import mmap
import os
from abc import abstractmethod
from collections.abc import Iterable
from typing import NamedTuple, Protocol

_MARK = "://"


class Partial(mmap.mmap):
    """A read-only mapping of a file, of full length, that is fetched in parts. Parts not fetched yet read as zeros.

    Code that reads a mapped file which may be remote first calls :func:`rmqtool.store.disk.mapping.need` with the range
    that it is about to read. For local files that does nothing.

    All methods raise UnreadableStore if bytes cannot be fetched.
    """

    @abstractmethod
    def need(self, start: int, stop: int) -> None:
        """Fetch bytes [start, stop), up to the end of the file."""

    @abstractmethod
    def need_all(self, ranges: Iterable[tuple[int, int]]) -> None:
        """Like :meth:`need`, for many ranges in ascending order."""

    @abstractmethod
    def need_whole(self) -> None:
        """Fetch the whole file and keep it."""

    @abstractmethod
    def forget(self, start: int, stop: int) -> None:
        """Release the memory of [start, stop); later reads must fetch it again."""


class RemoteStat(NamedTuple):
    """An entry of a remote directory."""

    name: str
    is_dir: bool
    size: int
    mtime_ns: int


class RemotePlace(Protocol):
    """A remote store in the state in which it was first seen. All methods raise UnreadableStore."""

    uri: str  # with everything needed to connect, secrets included

    def entries(self, path: str) -> list[RemoteStat]:
        """The entries of a directory, by name; empty if it does not exist."""

    def find(self, path: str) -> RemoteStat | None:
        """The entry of a file or directory; None if it does not exist."""

    def read(self, path: str, limit: int) -> bytes | None:
        """The first bytes of a file; None if it does not exist."""

    def map(self, path: str, size: int | None = None) -> Partial | bytes:
        """Map a file's first ``size`` bytes (None: all); ``b""`` if empty. Nothing is fetched yet."""


_places: dict[str, RemotePlace] = {}


def attach(root: str, place: RemotePlace) -> None:
    """Register the place of the store at ``root``, replacing an earlier one."""
    _places[root] = place


def place_of(path: str) -> RemotePlace | None:
    """The remote place that a path leads to; None for this machine."""
    if _MARK not in path:
        return None
    return next((place for root, place in _places.items() if path == root or path.startswith(f"{root}/")), None)


def uri_of(path: str) -> str | None:
    """The URI of the store that contains a file; None for a local one."""
    return None if (place := place_of(path)) is None else place.uri


def is_uri(path: str) -> bool:
    """Whether a path is a URI and not the name of a local file."""
    return _MARK in path and not os.path.exists(path)


def show_uri(uri: str) -> str:
    """A URI for messages and columns: without options and without anything that may be a secret."""
    scheme, mark, rest = uri.partition("?")[0].partition(_MARK)
    authority, slash, path = rest.partition("/")
    _key, colon, port = authority.rpartition(":")
    if colon and "@" not in authority and "]" not in port and port and not port.isdecimal():
        # not a port but an unescaped key containing a slash or a question mark; it extends to the last @
        authority, slash, path = uri.partition(_MARK)[2].rpartition("@")[2].partition("?")[0].partition("/")
        authority, path = (authority, path) if "@" in uri else ("***", "")
    user, at, host = authority.rpartition("@")
    if scheme != "s3":  # in an S3 URI the user is a key
        host = user.partition(":")[0] + at + host
    return f"{scheme}{mark}{host}{slash}{path}".rstrip("/")
