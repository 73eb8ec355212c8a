"""Config files for reading: as a broker would load them at its start, with warnings."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from operator import attrgetter

from formats.config.file import ConfigFile
from formats.config.files import ConsumerOffsets, OffsetTable, QueueOffset, SubscriptionGroups, Topics
from rmqtool.errors import CorruptFile, UnreadableStore
from rmqtool.store.config.files import read_config
from rmqtool.store.layout.paths import StoreLayout

FILES = ("consumerOffset.json", "lmqConsumerOffset.json")
Warn = Callable[[str], None]


def load_config(layout: StoreLayout, name: str, warn: Warn) -> ConfigFile | None:
    """A config file, or its ``.bak`` if it is missing or broken; None if there is neither.

    Raises:
        CorruptFile: broken, and no good ``.bak``.
        UnreadableStore: it cannot be read, and there is no good ``.bak``; also if another user could read it.
    """
    try:
        config = read_config(layout, name)
    except (CorruptFile, UnreadableStore) as err:
        if isinstance(err.__cause__, PermissionError):
            raise
        try:
            older = read_config(layout, name, bak=True)
        except (CorruptFile, UnreadableStore):
            raise err from None
        if older is None:
            raise
        older_name = "that one" if isinstance(err, CorruptFile) else f"{name}.bak"  # which a CorruptFile names itself
        warn(f"{err}: {older_name} is read, as a broker does at its start")
        return older
    if config is None and (config := read_config(layout, name, bak=True)) is not None:
        warn(f"{layout.path('config', name)}: missing: {name}.bak is read, as a broker does at its start")
    return config


def look_at_config(layout: StoreLayout, name: str, warn: Warn) -> ConfigFile | None:
    """As :func:`load_config`, but a file that cannot be read is only a warning."""
    try:
        return load_config(layout, name, warn)
    except (CorruptFile, UnreadableStore) as err:
        warn(str(err))
        return None


def topics_of(layout: StoreLayout, warn: Warn) -> Topics | None:
    """``topics.json``; None if it is lost: then no topic can be called unknown."""
    config = look_at_config(layout, "topics.json", warn)
    return config if isinstance(config, Topics) else None


def groups_of(layout: StoreLayout, warn: Warn) -> SubscriptionGroups | None:
    """``subscriptionGroup.json``; None if it is lost."""
    config = look_at_config(layout, "subscriptionGroup.json", warn)
    return config if isinstance(config, SubscriptionGroups) else None


def group_offsets(layout: StoreLayout, warn: Warn) -> Iterator[OffsetTable]:
    """The offsets that the broker keeps for its groups; the files are read before the first table.

    Raises:
        CorruptFile: an offsets file is broken, and has no good ``.bak``.
    """
    files = [load_config(layout, name, warn) for name in FILES]
    return (table for file in files if isinstance(file, ConsumerOffsets) for table in file.tables())


def known_offsets(layout: StoreLayout, warn: Warn) -> Iterator[OffsetTable]:
    """As :func:`group_offsets`, but unreadable files only cause a warning."""
    files = [look_at_config(layout, name, warn) for name in FILES]
    return (table for file in files if isinstance(file, ConsumerOffsets) for table in file.tables())


def sort_tables(tables: Iterable[OffsetTable]) -> Iterator[OffsetTable]:
    """Tables sorted by group and topic, without copying, as there may be millions of offsets.

    If two files have tables of the same group and topic, the second wins.
    """
    last: OffsetTable | None = None
    ordered = sorted(tables, key=attrgetter("topic"))
    ordered.sort(key=attrgetter("group"))
    for table in ordered:
        if last is not None and table[:2] == last[:2]:
            table = table._replace(queues={**last.queues, **table.queues})
        elif last is not None:
            yield last
        last = table
    if last is not None:
        yield last


def sort_offsets(tables: Iterable[OffsetTable]) -> Iterator[QueueOffset]:
    """Each offset, sorted by group, topic and queue."""
    for topic, group, queues in sort_tables(tables):
        for queue_id, offset in sorted(queues.items()):
            yield QueueOffset(topic, group, queue_id, offset)


def offsets_of(tables: Iterable[OffsetTable]) -> dict[tuple[str, str], Mapping[int, int]]:
    """(Topic, group) to the offsets of their queues; see :func:`sort_tables`."""
    return {(topic, group): queues for topic, group, queues in sort_tables(tables)}
