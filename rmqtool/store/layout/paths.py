"""The path and size of each file of a store (store.config.StorePathConfigHelper; store-formats 1).

Sizes come from the broker's properties file if given, else from the files, else from the broker's defaults.
"""

import os
from collections.abc import Callable, Iterator
from itertools import pairwise

from formats.layouts.derived import BATCH_CQ_ENTRY
from rmqtool.errors import BadValue, UnreadableStore
from rmqtool.store.disk.directories import DirectoryEntry, exists, is_dir, list_dir, read_small
from rmqtool.store.disk.remote import is_uri, place_of, show_uri
from rmqtool.store.disk.segments import Segments, common_size, offset_name
from rmqtool.store.layout.broker_conf import BrokerConf
from rmqtool.words import command_line

DEFAULT_COMMIT_LOG = 1 << 30
DEFAULT_CONSUME_QUEUE = 6_000_000
DEFAULT_BATCH_CONSUME_QUEUE = 13_800_000
DEFAULT_SLOTS = 5_000_000
DEFAULT_ENTRIES = 20_000_000
UNIT = 20
BATCH_UNIT = BATCH_CQ_ENTRY.size
EPOCHS = "epochFileCheckpoint"  # of replicas in controller mode
BATCH_QUEUES = "batchconsumequeue"
QUEUE_KINDS = ("consumequeue", BATCH_QUEUES)
EXTENSIONS = "consumequeue_ext"
COMPACTION = "compaction"

PARTS = (
    "commitlog",
    "consumequeue",
    "index",
    "checkpoint",
    "config",
    "abort",
    EXTENSIONS,
    BATCH_QUEUES,
)
_RARE = (BATCH_QUEUES, COMPACTION)
_DLEDGER_PARTS = {"data", "index", "currterm"}


def is_dledger_log(entry: DirectoryEntry) -> bool:
    """Whether a directory is the log of a DLedger member; members' stores, too, may lie in directories of such names.

    Raises:
        UnreadableStore: it cannot be listed.
    """
    if not entry.name.startswith("dledger-") or not entry.is_dir():
        return False
    names = {inner.name for inner in list_dir(entry.path)}
    return not names.isdisjoint(_DLEDGER_PARTS) and names.isdisjoint(("commitlog", "consumequeue", "config"))


class StoreLayout:
    """Paths and sizes of one store directory.

    Directories are listed on every call; :meth:`listed_once` returns a layout that caches the listings.

    Args:
        root: the store directory (``storePathRootDir``).
        conf: the broker's settings.

    Attributes:
        passed: path and reason of everything unreadable that was skipped (:meth:`passing_over`); None if unreadable
            files are errors.
        skips_queue_files: files of queues may be skipped as well.

    Raises:
        UnreadableStore: the path is missing, not a directory, or contains no part of a store.
        BadValue: a URI that has not been attached.
    """

    def __init__(self, root: str, conf: BrokerConf | None = None) -> None:
        self.root = checked_path(root)
        self.conf = conf or BrokerConf()
        self.passed: dict[str, str] | None = None
        self.skips_queue_files = False
        self._list_dir: Callable[[str], list[DirectoryEntry]] = list_dir
        entries = list_dir(self.root)
        names = {entry.name for entry in entries}
        if not names and not is_dir(self.root):
            raise UnreadableStore(f"{root}: no such directory")
        self.commit_log_paths = self._commit_log_paths()
        if not names.intersection(PARTS) and not any(map(is_dledger_log, entries)):
            outside = any(map(is_dir, self.commit_log_paths))
            if not outside:
                raise UnreadableStore(
                    f"{root}: not a store directory: no commitlog, consumequeue, index or config in it"
                )

    def _copy(self) -> "StoreLayout":
        layout = object.__new__(StoreLayout)  # the module copy takes time to load
        vars(layout).update(vars(self))
        return layout

    def listed_once(self) -> "StoreLayout":
        """The same store with cached listings: each directory is listed the first time it is needed.

        For a command that looks at many parts of a store and must not list it again for each. Files that appear, grow
        or disappear later are not noticed, so writers, and code that carries out a plan, create a new layout.
        """
        layout = self._copy()
        layout._list_dir = _CachedListing().list_dir
        return layout

    def with_conf(self, conf: BrokerConf) -> "StoreLayout":
        """The same store with other settings; the paths of its parts stay the same."""
        layout = self._copy()
        layout.conf = conf
        return layout

    def passing_over(self, *, queue_files: bool = False) -> "StoreLayout":
        """The same store, skipping what cannot be read unless it is part of the commit log.

        A directory that cannot be listed then counts as empty, and a small file as missing; :attr:`passed` records
        them.

        Args:
            queue_files: skip files of queues and compaction logs as well: their entries are then missing. Otherwise
                they are errors, for callers that report each of them themselves.
        """
        layout = self._copy()
        layout.passed = {}
        layout.skips_queue_files = queue_files
        return layout

    def pass_over(self, path: str, err: UnreadableStore) -> None:
        """Record that something cannot be read.

        Raises:
            UnreadableStore: ``err`` itself, if nothing may be skipped, or if another user could read it; few stores
                have batch queues or compacted topics, so these do not stop a command.
        """
        if self.passed is None or path in self.commit_log_paths:
            raise err
        if isinstance(err.__cause__, PermissionError) and self._relative(path).partition(os.sep)[0] not in _RARE:
            raise err
        self.passed.setdefault(path, str(err))

    def pass_over_file(self, path: str, err: UnreadableStore) -> None:
        """As :meth:`pass_over`, for a file of a queue.

        Raises:
            UnreadableStore: as there.
        """
        if not self.skips_queue_files:
            raise err
        self.pass_over(path, err)

    def pass_over_queue_file(self, err: UnreadableStore) -> None:
        """Have :meth:`files_in` leave out the queue file that an error is about.

        Raises:
            UnreadableStore: ``err`` itself, if it is about another file, or one that is left out already.
        """
        path = getattr(err.__cause__, "filename", None)
        if not isinstance(path, str) or path in (self.passed or {}):
            raise err
        if self._relative(path).partition(os.sep)[0] not in (*QUEUE_KINDS, EXTENSIONS):
            raise err
        self.pass_over(path, err)

    def lacks(self, path: str) -> bool:
        """Whether a path, a directory that contains it, or something below it was skipped."""
        below = f"{path}{os.sep}"
        return any(below.startswith(f"{each}{os.sep}") or each.startswith(below) for each in self.passed or ())

    def _relative(self, path: str) -> str:
        return os.path.relpath(path, self.root)

    def small(self, *parts: str) -> bytes | None:
        """The contents of a small file; None if it does not exist.

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
            return self._list_dir(path)
        except UnreadableStore as err:
            self.pass_over(path, err)
            return []

    def entries(self, *parts: str) -> list[DirectoryEntry]:
        """The entries of a directory, sorted by name; empty if it does not exist.

        Raises:
            UnreadableStore: no permission, or not a directory.
        """
        return self.entries_at(self.path(*parts))

    def entries_at(self, path: str) -> list[DirectoryEntry]:
        """Like :meth:`entries`, for a full path."""
        return self._list(path)

    def is_folder(self, path: str) -> bool:
        """Whether a path of the store is a directory."""
        return is_dir(path)

    def files_in(self, *directories: str) -> Segments:
        """The files of directories that share one offset space, such as a log, a queue or its extension.

        Raises:
            UnreadableStore: as :meth:`entries`.
        """
        segments = Segments.of(directories, self._list)
        if self.passed and any(file.path in self.passed for file in segments):
            segments = Segments([file for file in segments if file.path not in self.passed], segments.foreign)
        if self.skips_queue_files:
            for path in segments.foreign:
                if offset_name(os.path.basename(path)) is not None and not is_dir(path):
                    self.pass_over(path, UnreadableStore(f"{path}: not a regular file"))
        return segments

    def path(self, *parts: str) -> str:
        """A path below the root."""
        return os.path.join(self.root, *parts)

    def missing_log_folders(self) -> str | None:
        """The sign that a directory of the commit log is missing; None if all are there.

        Source: store.MultiPathMappedFileQueue.

        Raises:
            UnreadableStore: a directory of the store cannot be listed.
        """
        folders = self.commit_log_paths
        if len(folders) > 1:
            missing = [folder for folder in folders if not is_dir(folder)]
            return f"{', '.join(missing)} is not there" if missing else None
        bases = [(file.base, file.end) for file in self.commit_log()]
        gaps = [(end, base) for (_, end), (base, _) in pairwise(bases) if base != end]
        # files alternate between folders, so a single folder has several gaps of one file each
        sizes = {end - base for base, end in bases}
        if len(gaps) > 1 and len(sizes) == 1 and all(base - end == next(iter(sizes)) for end, base in gaps):
            return f"{folders[0]} has every second file only (storePathCommitLog names the other folder)"
        return None

    def part_with(self, path: str) -> str | None:
        """The part of the store that contains a path: a directory in which a broker treats every file as its own."""
        real = os.path.realpath(path)
        for part in (*self.commit_log_paths, *map(self.path, PARTS)):
            if real == (folder := os.path.realpath(part)) or real.startswith(folder + os.sep):
                return part
        return None

    def configured_paths(self, name: str) -> list[str]:
        """The paths in a setting, relocated to this store (:meth:`_rebase`); empty without the setting."""
        return list(map(self._rebase, self.conf.paths(name)))

    def _rebase(self, path: str) -> str:
        """Relocate a path of the properties file: if it is below the configured root, it moves with the store.

        Stores are often inspected as copies, whose properties still name the original paths.
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
        """Directories of the entries of a DLedger log; empty without one."""
        if not (directories := self.dledger_dirs()):
            return []
        return self.configured_paths("storePathDLedgerCommitLog") or [
            os.path.join(directory, "data") for directory in directories
        ]

    def commit_log(self) -> Segments:
        """The commit-log files of all paths; a DLedger log's files follow those from before it was introduced."""
        entries = self.dledger_paths()
        pages = self.conf.flag("writeWithoutMmap", False)
        return Segments.of([*self.commit_log_paths, *entries], self._list, entries=entries, whole_pages=pages)

    def command(self, verb: str, *words: str) -> str:
        """A command line of rmqtool for this store; the verb may be of two words."""
        return command_line(*verb.split(), self.root, *words, *self.conf.options)

    def commit_log_size(self, segments: Segments) -> int:
        """The file size of the commit log: as configured, else from the files, else the default."""
        return self.conf.sizes.get("mappedFileSizeCommitLog") or common_size(segments) or DEFAULT_COMMIT_LOG

    def queue_dirs(self, kind: str = "consumequeue") -> list[tuple[str, int, str]]:
        """(topic, queue id, path) of every queue directory; what the broker ignores is skipped."""
        return list(self.each_queue_dir(kind))

    def each_queue_dir(self, kind: str = "consumequeue", prefix: str = "") -> Iterator[tuple[str, int, str]]:
        """Lazy :meth:`queue_dirs` for topics with a given prefix."""
        for topic in self.entries(kind):
            if topic.name.startswith(prefix) and self._is_folder_of_queues(topic):
                for queue_id, path in self._queues_in(topic.path).items():
                    yield topic.name, queue_id, path

    def topic_names(self, kind: str = "consumequeue") -> list[str]:
        """The names of the directories of topics, ascending; what is in them is not looked at."""
        return [topic.name for topic in self.entries(kind) if self._is_folder_of_queues(topic)]

    def queues_of(self, topic: str, kind: str = "consumequeue") -> dict[int, str]:
        """Queue id and path of every queue directory of one topic, ascending; other topics are not listed."""
        if not is_path_name(topic):
            return {}
        path = self.path(kind, topic)
        if not is_dir(path):
            if self.skips_queue_files and os.path.lexists(path):
                self.pass_over(path, UnreadableStore(f"{path}: not a directory"))
            return {}
        return self._queues_in(path)

    def _queues_in(self, topic: str) -> dict[int, str]:
        """Queue id and path of every queue in a topic's directory, ascending."""
        # the broker uses only the number: for "007" it creates queue 7, whose files are in "7"
        ids = {
            number
            for queue in self._list(topic)
            if (number := _queue_id(queue.name)) is not None and self._is_folder_of_queues(queue)
        }
        return {number: os.path.join(topic, str(number)) for number in sorted(ids)}

    def _is_folder_of_queues(self, entry: DirectoryEntry) -> bool:
        """Whether an entry is a directory; what is neither that nor a file is in the way of one."""
        try:
            if entry.is_dir():
                return True
            if self.skips_queue_files and not entry.is_file():
                self.pass_over(entry.path, UnreadableStore(f"{entry.path}: not a directory"))
        except UnreadableStore as err:
            self.pass_over(entry.path, err)
        return False

    def has_queues(self, prefix: str) -> bool:
        """Whether there is a queue of a topic with a given prefix."""
        return any(True for _queue in self.each_queue_dir(prefix=prefix))

    def queue_path(self, topic: str, queue_id: int, kind: str = "consumequeue") -> str:
        """Directory of one queue.

        Raises:
            UnreadableStore: the topic cannot be a directory name, so it has no queues.
        """
        if not is_path_name(topic):
            raise UnreadableStore(f"{topic!r} cannot be a topic")
        return self.path(kind, topic, str(queue_id))

    def queue_size(self, sample: Segments | None = None) -> int:
        """File size of consume queues in bytes, rounded up to whole entries as in the broker.

        Args:
            sample: files of one queue. Without any, the first queue that has files is searched for; callers that need
                the size for many queues should call this once.
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
            sample: files of one queue; without any, as in :meth:`queue_size`.
        """
        size = self.conf.sizes.get("mapperFileSizeBatchConsumeQueue")
        if size is None and sample is not None:
            size = common_size(sample)
        if size is None:
            sizes = (common_size(self.files_in(path)) for _topic, _id, path in self.each_queue_dir(BATCH_QUEUES))
            size = next(filter(None, sizes), None)
        return -(-(size or DEFAULT_BATCH_CONSUME_QUEUE) // BATCH_UNIT) * BATCH_UNIT

    def index_paths(self) -> list[str]:
        """Index files, oldest first; files without a numeric name are skipped as in the broker."""
        paths = (e.path for e in self.entries("index") if e.name.isdecimal() and e.is_file())
        return [path for path in paths if path not in (self.passed or ())]

    def index_geometry(self) -> tuple[int, int] | None:
        """(hash slots, entries) if set in the properties file."""
        sizes = self.conf.sizes
        if "maxHashSlotNum" in sizes or "maxIndexNum" in sizes:
            return sizes.get("maxHashSlotNum", DEFAULT_SLOTS), sizes.get("maxIndexNum", DEFAULT_ENTRIES)
        return None

    def checkpoint(self) -> bytes | None:
        """The contents of the checkpoint; None if it does not exist."""
        return self.small("checkpoint")

    @property
    def aborted(self) -> bool:
        """Whether the abort file exists: the broker is running or did not stop cleanly."""
        return exists(self.path("abort"))


class _CachedListing:
    """Lists each directory once and caches the result."""

    def __init__(self) -> None:
        self._listings: dict[str, list[DirectoryEntry]] = {}

    def list_dir(self, path: str) -> list[DirectoryEntry]:
        """Like :func:`rmqtool.store.disk.directories.list_dir`; errors are not cached."""
        if path not in self._listings:
            self._listings[path] = list_dir(path)
        return self._listings[path]


def checked_path(path: str) -> str:
    """An absolute path, independent of the working directory; a remote store's URI stays as it is.

    Raises:
        BadValue: a URI that has not been attached.
    """
    if place_of(path) is not None:
        return path
    if is_uri(path):
        raise BadValue(
            f"{show_uri(path)}: a URI: only sql, report, dump-to-parquet and tier read a store there; other commands "
            "need a path"
        )
    return os.path.abspath(path)


def _queue_id(name: str) -> int | None:
    """The queue id of a directory, by ``Integer.parseInt``: damaged records can create queues with negative ids."""
    number = offset_name(name[1:] if name[:1] in ("+", "-") else name)
    if number is None:
        return None
    number = -number if name[0] == "-" else number
    return number if -(2**31) <= number < 2**31 else None


def is_path_name(name: str) -> bool:
    """Whether a name from a record is safe as a directory name. Hostile topics must not lead out of the store."""
    try:
        length = len(name) if name.isascii() else len(os.fsencode(name))
    except UnicodeEncodeError:
        return False
    return 0 < length <= 255 and name not in (".", "..") and "/" not in name and "\0" not in name
