"""Config files for reading: as a broker would load them at its start, with warnings."""

from collections.abc import Callable, Iterator

from formats.config.file import ConfigFile
from formats.config.files import ConsumerOffsets, QueueOffset, SubscriptionGroups, Topics
from rmqtool.errors import CorruptFile
from rmqtool.services.lookup.offsets import FILES
from rmqtool.store.config.files import read_config
from rmqtool.store.layout.paths import StoreLayout

Warn = Callable[[str], None]


def load_config(layout: StoreLayout, name: str, warn: Warn) -> ConfigFile | None:
    """A config file, or its ``.bak`` if it is missing or broken; None if there is neither.

    Raises:
        CorruptFile: broken, and no good ``.bak``.
    """
    try:
        config = read_config(layout, name)
    except CorruptFile as err:
        try:
            older = read_config(layout, name, bak=True)
        except CorruptFile:
            raise err from None
        if older is None:
            raise
        warn(f"{err}: that one is read, as a broker does at its start")
        return older
    if config is None and (config := read_config(layout, name, bak=True)) is not None:
        warn(f"{layout.path('config', name)}: missing: {name}.bak is read, as a broker does at its start")
    return config


def look_at_config(layout: StoreLayout, name: str, warn: Warn) -> ConfigFile | None:
    """As :func:`load_config`, but a file that cannot be read is only a warning."""
    try:
        return load_config(layout, name, warn)
    except CorruptFile as err:
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


def group_offsets(layout: StoreLayout, warn: Warn) -> Iterator[QueueOffset]:
    """Every offset that the broker keeps for its groups; the files are read before the first one.

    Raises:
        CorruptFile: an offsets file is broken, and has no good ``.bak``.
    """
    tables = [load_config(layout, name, warn) for name in FILES]
    return (entry for table in tables if isinstance(table, ConsumerOffsets) for entry in table.entries())


def known_offsets(layout: StoreLayout, warn: Warn) -> dict[tuple[str, str, int], int]:
    """(topic, group, queue) to offset, as far as the files can be read; see also :func:`known_entries`."""
    return {(entry.topic, entry.group, entry.queue_id): entry.offset for entry in known_entries(layout, warn)}


def known_entries(layout: StoreLayout, warn: Warn) -> Iterator[QueueOffset]:
    """Every offset that the broker keeps for its groups, as far as the files can be read."""
    tables = [look_at_config(layout, name, warn) for name in FILES]
    return (entry for table in tables if isinstance(table, ConsumerOffsets) for entry in table.entries())
