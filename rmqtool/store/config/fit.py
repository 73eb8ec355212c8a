"""Check a broker's properties file against a release and a store, by what a broker actually does with it.

A broker ignores names that it does not know and numbers that it cannot parse, and uses its defaults instead
(common.MixAll.properties2Object); it then refuses files whose length differs from the configured one
(store.MappedFileQueue.load).
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from formats.index import file_size as index_length
from formats.variants.compaction import log_file_size, queue_file_size
from rmqtool.errors import Refused
from rmqtool.rules.releases import RELEASES, Release
from rmqtool.store.config.release import release_of
from rmqtool.store.config.settings import nearest, settings_of
from rmqtool.store.disk.segments import common_size
from rmqtool.store.index.reader import geometry_of
from rmqtool.store.layout.broker_conf import BrokerConf
from rmqtool.store.layout.paths import BATCH_QUEUES, BATCH_UNIT, UNIT, StoreLayout

COMMIT_LOG, QUEUE, EXTENSION = "mappedFileSizeCommitLog", "mappedFileSizeConsumeQueue", "mappedFileSizeConsumeQueueExt"
BATCH_QUEUE, TIMER_LOG = "mapperFileSizeBatchConsumeQueue", "mappedFileSizeTimerLog"
SLOTS, ENTRIES = "maxHashSlotNum", "maxIndexNum"
COMPACTED, COMPACTED_QUEUE = "compactionMappedFileSize", "compactionCqMappedFileSize"
_WRITTEN_BY_LENGTH = ("commitlog", "consumequeue", BATCH_QUEUES)
_AGREE = 2  # files of one length needed to exclude that they were truncated
_IMPOSSIBLE = "no file can have this length"
_IGNORED = "this is no number, so a broker ignores it and uses its default"
STOPS = "A broker with this configuration does not start on this store."
_MISLEADS = (
    "A broker with this configuration reads index files at the wrong places: queries by key miss messages that are "
    "there, and what it adds makes the files useless."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class IgnoredLine:
    """A line of the file that has no effect on a broker.

    Attributes:
        name: name of the setting.
        other: the release that knows it, if this one does not.
        near: the setting that was probably meant, if no release knows it.
        text: the unparsable text of a known setting; ``takes`` is then the value that a broker uses.
    """

    name: str
    other: str | None = None
    near: str | None = None
    text: str | None = None
    takes: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Misfit:
    """Store files whose length differs from the one that a broker with this configuration expects.

    Attributes:
        names: the settings that decide the length.
        place: directory of the files, relative to the store.
        wants, has: bytes per file: as configured, and in the store.
        sure: whether several files agree, so that none is damaged.
        ours: whether rmqtool uses the configured length, too.
        stated: whether the configuration has one of the names.
        stops: whether the broker fails to start; otherwise it starts and reads wrongly.
        set: what the configuration should contain instead, if known.
    """

    names: tuple[str, ...]
    place: str
    wants: int
    has: int
    sure: bool
    ours: bool
    stated: bool
    stops: bool = True
    set: str | None = None

    @property
    def consequence(self) -> str:
        """Consequence for a broker."""
        return STOPS if self.stops else _MISLEADS

    def describe(self, conf: BrokerConf) -> str:
        """The misfit as one warning."""
        way = f" Set {self.set} in it." if self.set else ""
        names = ", ".join(self.names)
        if not self.stated:
            names = f"default, for want of {names},"
        return (
            f"{conf.path}: by {names} files of {self.place} are {self.wants} bytes long, but those of the store are "
            f"{self.has}. {self.consequence}{way}"
        )


def find_ignored_lines(conf: BrokerConf, release: Release) -> Iterator[IgnoredLine]:
    """Lines that a broker of a release ignores or reads differently."""
    known = settings_of(release)
    for name, text in conf.values.items():
        if name not in known:
            other = next(
                (other for other in RELEASES.values() if other != release and name in settings_of(other)), None
            )
            yield IgnoredLine(
                name=name, other=None if other is None else other.name, near=None if other else nearest(name, release)
            )
            continue
        setting = known[name]
        value = setting.takes(text)
        if value is None:
            yield IgnoredLine(name=name, text=text, takes=_text_of(setting.default))
        elif setting.kind == "boolean" and text.lower() not in ("true", "false"):
            yield IgnoredLine(name=name, text=text, takes="false")


def _text_of(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


@dataclass(slots=True)
class _Lengths:
    """Counts file lengths until two agree."""

    seen: Counter[int] = field(default_factory=Counter)

    def add(self, lengths: Iterable[int]) -> bool:
        """Add lengths; returns whether the file length is certain now."""
        self.seen.update(length for length in lengths if length)
        return any(count >= _AGREE for count in self.seen.values())

    @property
    def has(self) -> int | None:
        """The most frequent length; None without files."""
        return max(self.seen, key=lambda length: (self.seen[length], length), default=None)


class _Fit:
    """Compares one configuration with one store."""

    def __init__(self, layout: StoreLayout, release: Release) -> None:
        self.layout, self.conf, self.known = layout, layout.conf, settings_of(release)

    def wants(self, name: str) -> int:
        """The value that a broker uses for a size."""
        setting = self.known[name]
        text = self.conf.values.get(name)
        value = None if text is None else setting.takes(text)
        return int(setting.default if value is None else value)

    def misfits(self) -> Iterator[Misfit]:
        """All misfits, those first that keep a broker from starting."""
        layout = self.layout
        log = layout.commit_log().files
        if (size := common_size(log)) is not None:
            count = sum(file.size == size for file in log)
            yield from self._judge("commitlog", size, count, COMMIT_LOG, self.wants(COMMIT_LOG), f"{COMMIT_LOG}={size}")
        for kind, name, unit in (("consumequeue", QUEUE, UNIT), (BATCH_QUEUES, BATCH_QUEUE, BATCH_UNIT)):
            if name in self.known:
                wants = -(-self.wants(name) // unit) * unit
                yield from self._check_queues(kind, name, wants)
        if self.conf.flag("enableConsumeQueueExt", False):
            yield from self._check_queues("consumequeue_ext", EXTENSION, self.wants(EXTENSION))
        if TIMER_LOG in self.known and self.conf.flag("timerWheelEnable", True):
            files = layout.files_in(layout.path("timerlog")).files
            if (size := common_size(files)) is not None:
                count = sum(file.size == size for file in files)
                yield from self._judge("timerlog", size, count, TIMER_LOG, self.wants(TIMER_LOG), f"{TIMER_LOG}={size}")
        if COMPACTED in self.known and self.conf.flag("enableCompaction", True):
            yield from self._check_compacted()
        yield from self._check_index()

    def _check_queues(self, kind: str, name: str, wants: int) -> Iterator[Misfit]:
        lengths = self._queue_lengths(kind)
        if (has := lengths.has) is not None:
            yield from self._judge(kind, has, lengths.seen[has], name, wants, f"{name}={has}")

    def _queue_lengths(self, kind: str) -> _Lengths:
        lengths = _Lengths()
        for _topic, _queue_id, path in self.layout.each_queue_dir(kind):
            if lengths.add(file.size for file in self.layout.files_in(path)):
                break
        return lengths

    def _check_compacted(self) -> Iterator[Misfit]:
        queue = self.wants(COMPACTED_QUEUE)
        logs, queues = (self._queue_lengths(f"compaction/{kind}") for kind in ("compactionLog", "compactionCq"))
        if (has := logs.has) is not None:
            # one more than the length, as a multiple of the queue files' length is rounded up
            right = next((size for size in (has + 1, has) if log_file_size(size, queues.has or queue) == has), None)
            set_to, wants = (
                None if right is None else f"{COMPACTED}={right}",
                log_file_size(self.wants(COMPACTED), queue),
            )
            yield from self._judge("compaction/compactionLog", has, logs.seen[has], COMPACTED, wants, set_to)
        if (has := queues.has) is not None:
            wants, set_to = queue_file_size(queue), f"{COMPACTED_QUEUE}={has}"
            yield from self._judge("compaction/compactionCq", has, queues.seen[has], COMPACTED_QUEUE, wants, set_to)

    def _check_index(self) -> Iterator[Misfit]:
        lengths = _Lengths()
        lengths.add(entry.size for entry in self.layout.entries("index") if entry.name.isdecimal() and entry.is_file())
        if (has := lengths.has) is not None:
            wants = index_length(self.wants(SLOTS), self.wants(ENTRIES))
            slots, entries = geometry_of(self.layout.with_conf(self.conf.without({SLOTS, ENTRIES})))
            right = f"{SLOTS}={slots} and {ENTRIES}={entries}" if index_length(slots, entries) == has else None
            yield from self._judge("index", has, lengths.seen[has], (SLOTS, ENTRIES), wants, right, stops=False)

    def _judge(
        self,
        place: str,
        has: int,
        count: int,
        name: str | tuple[str, ...],
        wants: int,
        set_to: str | None,
        *,
        stops: bool = True,
    ) -> Iterator[Misfit]:
        names = (name,) if isinstance(name, str) else name
        stated = any(name in self.conf.values for name in names)
        if wants == has or not (stated or self.conf.options):
            return
        # if a broker parses the text differently than we do, the setting is ignored here, and the files' length counts
        ours = any(name in self.conf.sizes and self.wants(name) == self.conf.sizes[name] for name in names)
        sure = count >= _AGREE
        if ours and not sure:
            return  # a truncated file: the check of files reports which one
        yield Misfit(
            names=names, place=place, wants=wants, has=has, sure=sure, ours=ours, stated=stated, stops=stops, set=set_to
        )


def misfits(layout: StoreLayout, release: Release | None = None) -> list[Misfit]:
    """The misfits between a store and the configuration it was opened with; empty without a configuration.

    Args:
        release: None for the release that seems to have written the store.

    Raises:
        UnreadableStore: a directory of the store cannot be listed.
    """
    if not layout.conf.values and not layout.conf.options:
        return []
    return list(_Fit(layout, release or release_of(layout)).misfits())


def misfit_warnings(layout: StoreLayout) -> list[str]:
    """:func:`misfits` as warnings for writers, which write files with the length of those in the store.

    Sizes that a broker ignores are among them.
    """
    return _describe(layout.conf, misfits(layout))


def _describe(conf: BrokerConf, wrong_sizes: list[Misfit]) -> list[str]:
    ignored = [f"{conf.path}: {name}={text}: {_IGNORED}" for name, text in conf.ignored.items()]
    return [*ignored, *(misfit.describe(conf) for misfit in wrong_sizes)]


def refuse_unusable_sizes(conf: BrokerConf) -> None:
    """Refuse a configuration for a new store if files could not have the lengths that it states.

    Raises:
        Refused: a size is no positive number.
    """
    for name, size in conf.impossible.items():
        raise Refused(f"{conf.path}: {name}={size}: {_IMPOSSIBLE}")
    for name, text in conf.ignored.items():
        raise Refused(f"{conf.path}: {name}={text}: {_IGNORED}")


def refuse_misfits(layout: StoreLayout) -> list[str]:
    """:func:`misfit_warnings`, but refuse to write log and queue files with a length that no file of the store has.

    Files of the index, of compaction and of the timer are rebuilt with the configured length, so these only get
    warnings.

    Raises:
        Refused: the configuration sets such a length, or one that no file can have.
    """
    for name, size in layout.conf.impossible.items():
        raise Refused(f"{layout.conf.path}: {name}={size}: {_IMPOSSIBLE}")
    wrong_sizes = misfits(layout)
    for misfit in wrong_sizes:
        if misfit.ours and misfit.sure and misfit.place in _WRITTEN_BY_LENGTH:
            raise Refused(f"{layout.root}: {misfit.describe(layout.conf)}")
    return _describe(layout.conf, wrong_sizes)
