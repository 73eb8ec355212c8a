"""Where each file of a store lives and how large it should be (store.config.StorePathConfigHelper; store-formats 1).

Sizes come from the broker's properties file where one is given, else from the files, else they are the broker's
defaults.
"""

import os
from collections.abc import Callable, Iterator
from copy import copy

from formats.layouts.derived import BATCH_CQ_ENTRY
from rmqtool.errors import BadValue, UnreadableStore
from rmqtool.store.disk.remote import exists, is_dir, is_uri, place_of, show_uri
from rmqtool.store.disk.segments import DirectoryEntry, Segments, common_size, list_dir, offset_name, read_small
from rmqtool.store.layout.broker_conf import BrokerConf
from rmqtool.words import command_line

DEFAULT_COMMIT_LOG = 1 << 30
DEFAULT_CONSUME_QUEUE = 6_000_000
DEFAULT_BATCH_CONSUME_QUEUE = 13_800_000
DEFAULT_SLOTS = 5_000_000
DEFAULT_ENTRIES = 20_000_000
UNIT = 20
BATCH_UNIT = BATCH_CQ_ENTRY.size
BATCH_QUEUES = "batchconsumequeue"

PARTS = (
    "commitlog",
    "consumequeue",
    "index",
    "checkpoint",
    "config",
    "abort",
    "consumequeue_ext",
    BATCH_QUEUES,
)


class StoreLayout:
    """Paths and sizes of one store directory.

    Directories are listed on each request for their content; :meth:`listed_once` gives a layout that does so once.

    Args:
        root: the store directory (``storePathRootDir``).
        conf: the broker's settings.

    Attributes:
        passed: path to the reason, of what cannot be read and was passed over (:meth:`passing_over`); None where such a
            thing is an error.

    Raises:
        UnreadableStore: the path is missing, no directory, or holds nothing that a store has.
        BadValue: a URI that nobody has attached.
    """

    def __init__(self, root: str, conf: BrokerConf | None = None) -> None:
        self.root = checked_path(root)
        self.conf = conf or BrokerConf()
        self.passed: dict[str, str] | None = None
        self._read: Callable[[str], list[DirectoryEntry]] = list_dir
        names = {entry.name for entry in list_dir(self.root)}
        if not names and not is_dir(self.root):
            raise UnreadableStore(f"{root}: no such directory")
        self.commit_log_paths = self._commit_log_paths()
        if not names.intersection(PARTS) and not any(name.startswith("dledger-") for name in names):
            outside = any(map(is_dir, self.commit_log_paths))
            if not outside:
                raise UnreadableStore(
                    f"{root}: not a store directory: no commitlog, consumequeue, index or config in it"
                )

    def listed_once(self) -> "StoreLayout":
        """The same store, each directory as it is when it is first asked for.

        For one command that looks at many parts of a store and must not list it again for each. What is made, grows or
        goes later does not show: writers, and those who carry out a plan, make a new layout.
        """
        layout = copy(self)
        layout._read = _Remembered().list_dir
        return layout

    def with_conf(self, conf: BrokerConf) -> "StoreLayout":
        """The same store with other settings; where its parts lie does not change."""
        layout = copy(self)
        layout.conf = conf
        return layout

    def passing_over(self) -> "StoreLayout":
        """The same store, for who goes on without what cannot be read, as long as that is no part of the commit log.

        A directory that cannot be listed then counts as empty, and a small file as missing. :attr:`passed` says which
        they are.
        """
        layout = copy(self)
        layout.passed = {}
        return layout

    def pass_over(self, path: str, err: UnreadableStore) -> None:
        """Note that something cannot be read.

        Raises:
            UnreadableStore: the same, where nothing may be passed over, or where another user could read it.
        """
        if self.passed is None or path in self.commit_log_paths or isinstance(err.__cause__, PermissionError):
            raise err
        self.passed.setdefault(path, str(err))

    def small(self, *parts: str) -> bytes | None:
        """A small file's bytes; None where there is none.

        Raises:
            UnreadableStore: it cannot be read.
            CorruptFile: it is far larger than it should be.
        """
        path = self.path(*parts)
        try:
            return read_small(path)
        except UnreadableStore as err:
            self.pass_over(path, err)
            return None

    def _list(self, path: str) -> list[DirectoryEntry]:
        try:
            return self._read(path)
        except UnreadableStore as err:
            self.pass_over(path, err)
            return []

    def entries(self, *parts: str) -> list[DirectoryEntry]:
        """What is in a directory, sorted by name; nothing where it is missing.

        Raises:
            UnreadableStore: no permission, or not a directory.
        """
        return self.entries_at(self.path(*parts))

    def entries_at(self, path: str) -> list[DirectoryEntry]:
        """As :meth:`entries`, of a path."""
        return self._list(path)

    def is_folder(self, path: str) -> bool:
        """Whether a path of the store is a directory."""
        return is_dir(path)

    def files_in(self, *directories: str) -> Segments:
        """The files of directories that share one offset space: those of a log, of a queue or of its extension.

        Raises:
            UnreadableStore: as :meth:`entries`.
        """
        return Segments.of(directories, self._list)

    def path(self, *parts: str) -> str:
        """A path below the root."""
        return os.path.join(self.root, *parts)

    def part_with(self, path: str) -> str | None:
        """The part of the store, a directory in which a broker takes everything for its own, that a path lies in."""
        real = os.path.realpath(path)
        for part in (*self.commit_log_paths, *map(self.path, PARTS)):
            if real == (folder := os.path.realpath(part)) or real.startswith(folder + os.sep):
                return part
        return None

    def configured_paths(self, name: str) -> list[str]:
        """Paths that a setting says, as they apply here; none without the setting."""
        return list(map(self._rebase, self.conf.paths(name)))

    def _rebase(self, path: str) -> str:
        """A path of the properties file as it applies here: below its own root it moves with the store.

        A store is often looked at as a copy; then the paths in the broker's file still name the original.
        """
        old_root = self.conf.text("storePathRootDir")
        path = path.replace("${user.home}", os.path.expanduser("~"))
        if old_root:
            relative = os.path.relpath(path, old_root)
            if not relative.startswith(".."):
                return self.root if relative == "." else self.path(relative)
        return path

    def _commit_log_paths(self) -> list[str]:
        written = self.configured_paths("storePathCommitLog") or [self.path("commitlog")]
        return list(dict.fromkeys((*written, *self.configured_paths("readOnlyCommitLogStorePaths"))))

    def dledger_dirs(self) -> list[str]:
        """Directories of a DLedger log (``dledger-ID``)."""
        return [entry.path for entry in self.entries() if entry.name.startswith("dledger-") and entry.is_dir()]

    def dledger_paths(self) -> list[str]:
        """Directories of the entries of a DLedger log; none where there is none."""
        if not (directories := self.dledger_dirs()):
            return []
        return self.configured_paths("storePathDLedgerCommitLog") or [
            os.path.join(directory, "data") for directory in directories
        ]

    def commit_log(self) -> Segments:
        """The commit-log files of all paths; those of a DLedger log follow those that were there before it."""
        entries = self.dledger_paths()
        return Segments.of([*self.commit_log_paths, *entries], self._list, entries=entries)

    def command(self, verb: str, *words: str) -> str:
        """A command of ours about this store, as a person types it."""
        return command_line(verb, self.root, *words, *self.conf.options)

    def commit_log_size(self, segments: Segments) -> int:
        """Configured, that of the files, or default."""
        return self.conf.sizes.get("mappedFileSizeCommitLog") or common_size(segments) or DEFAULT_COMMIT_LOG

    def queue_dirs(self, kind: str = "consumequeue") -> list[tuple[str, int, str]]:
        """(topic, queue id, path) of every queue directory; what the broker passes over is passed over."""
        return list(self.each_queue_dir(kind))

    def each_queue_dir(self, kind: str = "consumequeue", prefix: str = "") -> Iterator[tuple[str, int, str]]:
        """:meth:`queue_dirs` of topics that begin so; directories are listed lazily."""
        for topic in self.entries(kind):
            if topic.name.startswith(prefix) and topic.is_dir():
                for queue_id, path in self._queues_in(topic.path).items():
                    yield topic.name, queue_id, path

    def queues_of(self, topic: str, kind: str = "consumequeue") -> dict[int, str]:
        """Queue id to path of every queue directory of one topic, ascending; the others are not listed."""
        path = self.path(kind, topic) if is_path_name(topic) else ""
        return self._queues_in(path) if path and is_dir(path) else {}

    def _queues_in(self, topic: str) -> dict[int, str]:
        """Queue id to path of every queue in a topic's directory, ascending."""
        # the broker goes by the number alone: of "007" it makes queue 7, whose files are in "7"
        ids = {_queue_id(queue.name) for queue in self._list(topic) if queue.is_dir()}
        return {number: os.path.join(topic, str(number)) for number in sorted(i for i in ids if i is not None)}

    def has_queues(self, prefix: str) -> bool:
        """Whether there is a queue of a topic whose name begins so."""
        return any(True for _queue in self.each_queue_dir(prefix=prefix))

    def queue_path(self, topic: str, queue_id: int, kind: str = "consumequeue") -> str:
        """Directory of one queue.

        Raises:
            UnreadableStore: the topic cannot be a directory name, so no queue of it can exist.
        """
        if not is_path_name(topic):
            raise UnreadableStore(f"{topic!r} cannot be a topic")
        return self.path(kind, topic, str(queue_id))

    def queue_size(self, sample: Segments | None = None) -> int:
        """File size of consume queues in bytes: rounded up to whole entries, as the broker does.

        Args:
            sample: files of one of them. Without any, queues are looked through for the first that has files: who needs
                the size of many should ask once.
        """
        size = self.conf.sizes.get("mappedFileSizeConsumeQueue")
        if size is None and sample is not None:
            size = common_size(sample)
        if size is None:
            for _topic, _queue_id, path in self.each_queue_dir():
                size = common_size(self.files_in(path))
                if size:
                    break
        return -(-(size or DEFAULT_CONSUME_QUEUE) // UNIT) * UNIT

    def batch_queue_size(self, sample: Segments | None = None) -> int:
        """File size of batch consume queues in bytes, rounded up to whole units.

        Args:
            sample: files of one of them; without any as :meth:`queue_size`.
        """
        size = self.conf.sizes.get("mapperFileSizeBatchConsumeQueue")
        if size is None and sample is not None:
            size = common_size(sample)
        if size is None:
            sizes = (common_size(self.files_in(path)) for _topic, _id, path in self.each_queue_dir(BATCH_QUEUES))
            size = next(filter(None, sizes), None)
        return -(-(size or DEFAULT_BATCH_CONSUME_QUEUE) // BATCH_UNIT) * BATCH_UNIT

    def index_paths(self) -> list[str]:
        """Index files, oldest first; names that are no number are passed over as the broker does."""
        return [e.path for e in self.entries("index") if e.name.isdecimal() and e.is_file()]

    def index_geometry(self) -> tuple[int, int] | None:
        """(hash slots, entries) where the properties file says so."""
        sizes = self.conf.sizes
        if "maxHashSlotNum" in sizes or "maxIndexNum" in sizes:
            return sizes.get("maxHashSlotNum", DEFAULT_SLOTS), sizes.get("maxIndexNum", DEFAULT_ENTRIES)
        return None

    def checkpoint(self) -> bytes | None:
        """The checkpoint's bytes; None when there is none."""
        return self.small("checkpoint")

    @property
    def aborted(self) -> bool:
        """Whether the abort marker is there: the broker runs, or did not stop cleanly."""
        return exists(self.path("abort"))


class _Remembered:
    """Lists directories, each once."""

    def __init__(self) -> None:
        self._known: dict[str, list[DirectoryEntry]] = {}

    def list_dir(self, path: str) -> list[DirectoryEntry]:
        """As :func:`rmqtool.store.disk.segments.list_dir`; an error is not remembered."""
        if path not in self._known:
            self._known[path] = list_dir(path)
        return self._known[path]


def checked_path(path: str) -> str:
    """A path as it holds wherever the process goes; of a store elsewhere its URI.

    Raises:
        BadValue: a URI that nobody has attached.
    """
    if place_of(path) is not None:
        return path
    if is_uri(path):
        raise BadValue(
            f"{show_uri(path)}: a URI: only sql, report and dump-to-parquet read a store there; other commands need a "
            "path"
        )
    return os.path.abspath(path)


def _queue_id(name: str) -> int | None:
    """A directory's name by ``Integer.parseInt``: a sign is allowed, and a damaged record can make a negative queue."""
    number = offset_name(name[1:] if name[:1] in ("+", "-") else name)
    if number is None:
        return None
    number = -number if name[0] == "-" else number
    return number if -(2**31) <= number < 2**31 else None


def is_path_name(name: str) -> bool:
    """Whether a name taken from a record may become one directory level. Hostile topics must not leave the store."""
    try:
        length = len(os.fsencode(name))
    except UnicodeEncodeError:
        return False
    return 0 < length <= 255 and name not in (".", "..") and "/" not in name and "\0" not in name
