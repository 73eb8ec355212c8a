"""Whether a broker's properties file fits a release and a store: what a broker does with it, not what it means to say.

A broker passes over names that it does not know and numbers that it cannot read, and goes on with its defaults
(common.MixAll.properties2Object); it then refuses files of another length than it is set to
(store.MappedFileQueue.load).
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from formats.index import file_size as index_length
from formats.variants.compaction import log_file_size, queue_file_size
from rmqtool.errors import Refused
from rmqtool.rules.releases import RELEASES, Release
from rmqtool.store.config.settings import nearest, settings_of
from rmqtool.store.disk.segments import common_size
from rmqtool.store.index.reader import geometry_of
from rmqtool.store.layout.broker_conf import BrokerConf
from rmqtool.store.layout.paths import BATCH_QUEUES, BATCH_UNIT, UNIT, StoreLayout
from rmqtool.store.layout.version import release_of

COMMIT_LOG, QUEUE, EXTENSION = "mappedFileSizeCommitLog", "mappedFileSizeConsumeQueue", "mappedFileSizeConsumeQueueExt"
BATCH_QUEUE, TIMER_LOG = "mapperFileSizeBatchConsumeQueue", "mappedFileSizeTimerLog"
SLOTS, ENTRIES = "maxHashSlotNum", "maxIndexNum"
COMPACTED, COMPACTED_QUEUE = "compactionMappedFileSize", "compactionCqMappedFileSize"
_WRITTEN_BY_LENGTH = ("commitlog", "consumequeue", BATCH_QUEUES)
_AGREE = 2  # files of one length, of which it is certain that they were not cut short
STOPS = "A broker with this configuration does not start on this store."
_MISLEADS = (
    "A broker with this configuration reads index files at the wrong places: queries by key miss messages that are "
    "there, and what it adds makes the files useless."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Unread:
    """A line of the file that a broker makes nothing of.

    Attributes:
        name: of the setting.
        other: the release that knows it, where this one does not.
        near: the setting that was probably meant, where no release knows it.
        text: of a setting that is known, what cannot be read; ``takes`` is what a broker has then.
    """

    name: str
    other: str | None = None
    near: str | None = None
    text: str | None = None
    takes: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Misfit:
    """Files of the store whose length is not that which a broker with this configuration wants.

    Attributes:
        names: of the settings that decide.
        place: of the files, below the store.
        wants, has: bytes of a file: by the configuration, and in the store.
        sure: several files agree: none was damaged.
        ours: the configuration says so, in a way that we take for it too.
        said: the configuration has one of the names.
        stops: the broker does not start; else it starts and reads wrong.
        set: what the configuration has to say instead, where that is known.
    """

    names: tuple[str, ...]
    place: str
    wants: int
    has: int
    sure: bool
    ours: bool
    said: bool
    stops: bool = True
    set: str | None = None

    @property
    def consequence(self) -> str:
        """What a broker does."""
        return STOPS if self.stops else _MISLEADS

    def words(self, conf: BrokerConf) -> str:
        """All of it as one warning."""
        way = f" Set {self.set} in it." if self.set else ""
        names = ", ".join(self.names)
        if not self.said:
            names = f"default, for want of {names},"
        return (
            f"{conf.path}: by {names} files of {self.place} are {self.wants} bytes long, but those of the store are "
            f"{self.has}. {self.consequence}{way}"
        )


def unread(conf: BrokerConf, release: Release) -> Iterator[Unread]:
    """Lines that a broker of a release passes over, or reads as something else."""
    known = settings_of(release)
    for name, text in conf.values.items():
        if name not in known:
            other = next(
                (other for other in RELEASES.values() if other != release and name in settings_of(other)), None
            )
            yield Unread(
                name=name, other=None if other is None else other.name, near=None if other else nearest(name, release)
            )
            continue
        setting = known[name]
        value = setting.takes(text)
        if value is None:
            yield Unread(name=name, text=text, takes=_text_of(setting.default))
        elif setting.kind == "boolean" and text.lower() not in ("true", "false"):
            yield Unread(name=name, text=text, takes="false")


def _text_of(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


@dataclass(slots=True)
class _Lengths:
    """Lengths of files, until two agree."""

    seen: Counter[int] = field(default_factory=Counter)

    def take(self, lengths: Iterable[int]) -> bool:
        """Whether it is known now how long files are."""
        self.seen.update(length for length in lengths if length)
        return any(count >= _AGREE for count in self.seen.values())

    @property
    def has(self) -> int | None:
        """The length; None without files."""
        return max(self.seen, key=lambda length: (self.seen[length], length), default=None)


class _Fit:
    """One configuration against one store."""

    def __init__(self, layout: StoreLayout, release: Release) -> None:
        self.layout, self.conf, self.known = layout, layout.conf, settings_of(release)

    def wants(self, name: str) -> int:
        """What a broker takes for a size."""
        setting = self.known[name]
        text = self.conf.values.get(name)
        value = None if text is None else setting.takes(text)
        return int(setting.default if value is None else value)

    def misfits(self) -> Iterator[Misfit]:
        """Every kind of file, those first that keep a broker from starting."""
        layout = self.layout
        log = layout.commit_log().files
        if (size := common_size(log)) is not None:
            count = sum(file.size == size for file in log)
            yield from self._judge("commitlog", size, count, COMMIT_LOG, self.wants(COMMIT_LOG), f"{COMMIT_LOG}={size}")
        for kind, name, unit in (("consumequeue", QUEUE, UNIT), (BATCH_QUEUES, BATCH_QUEUE, BATCH_UNIT)):
            if name in self.known:
                wants = -(-self.wants(name) // unit) * unit
                yield from self._queues(kind, name, wants)
        if self.conf.flag("enableConsumeQueueExt", False):
            yield from self._queues("consumequeue_ext", EXTENSION, self.wants(EXTENSION))
        if TIMER_LOG in self.known and self.conf.flag("timerWheelEnable", True):
            files = layout.files_in(layout.path("timerlog")).files
            if (size := common_size(files)) is not None:
                count = sum(file.size == size for file in files)
                yield from self._judge("timerlog", size, count, TIMER_LOG, self.wants(TIMER_LOG), f"{TIMER_LOG}={size}")
        if COMPACTED in self.known and self.conf.flag("enableCompaction", True):
            yield from self._check_compacted()
        yield from self._index()

    def _queues(self, kind: str, name: str, wants: int) -> Iterator[Misfit]:
        lengths = self._of_queues(kind)
        if (has := lengths.has) is not None:
            yield from self._judge(kind, has, lengths.seen[has], name, wants, f"{name}={has}")

    def _of_queues(self, kind: str) -> _Lengths:
        lengths = _Lengths()
        for _topic, _queue_id, path in self.layout.each_queue_dir(kind):
            if lengths.take(file.size for file in self.layout.files_in(path)):
                break
        return lengths

    def _check_compacted(self) -> Iterator[Misfit]:
        queue = self.wants(COMPACTED_QUEUE)
        for kind, name, wants in (
            ("compaction/compactionLog", COMPACTED, log_file_size(self.wants(COMPACTED), queue)),
            ("compaction/compactionCq", COMPACTED_QUEUE, queue_file_size(queue)),
        ):
            lengths = self._of_queues(kind)
            if (has := lengths.has) is not None:
                yield from self._judge(kind, has, lengths.seen[has], name, wants, None)

    def _index(self) -> Iterator[Misfit]:
        lengths = _Lengths()
        lengths.take(entry.size for entry in self.layout.entries("index") if entry.name.isdecimal() and entry.is_file())
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
        # a name that a broker reads otherwise than we do is not ours: then files go by their own length
        ours = any(name in self.conf.sizes and self.wants(name) == self.conf.sizes[name] for name in names)
        sure = count >= _AGREE
        if ours and not sure:
            return  # a file that was cut short: which file it is, the check of files says
        yield Misfit(
            names=names, place=place, wants=wants, has=has, sure=sure, ours=ours, said=stated, stops=stops, set=set_to
        )


def misfits(layout: StoreLayout, release: Release | None = None) -> list[Misfit]:
    """What of a store does not fit the configuration that it was opened with; nothing without one.

    Args:
        release: None for that which seems to have written the store.

    Raises:
        UnreadableStore: a directory of the store cannot be listed.
    """
    if not layout.conf.values and not layout.conf.options:
        return []
    return list(_Fit(layout, release or release_of(layout)).misfits())


def unfit(layout: StoreLayout) -> list[str]:
    """:func:`misfits` as warnings for writers: files are written by the length that those of the store have."""
    return [misfit.words(layout.conf) for misfit in misfits(layout)]


def refuse_misfits(layout: StoreLayout) -> list[str]:
    """:func:`unfit`, where log and queues are not written by a length that no file of the store has.

    An index, compaction logs and the timer's are built again by the configured length, so they are only warned of.

    Raises:
        Refused: the configuration sets such a length.
    """
    refused = misfits(layout)
    for misfit in refused:
        if misfit.ours and misfit.sure and misfit.place in _WRITTEN_BY_LENGTH:
            raise Refused(f"{layout.root}: {misfit.words(layout.conf)}")
    return [misfit.words(layout.conf) for misfit in refused]
