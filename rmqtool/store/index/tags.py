"""Whether the index has entries for tags, which brokers of 5.4 and later add."""

from collections.abc import Iterator
from itertools import islice

from formats.index import entries_array, key_hash, tag_key
from formats.message.properties import TAGS, parse
from rmqtool.errors import UnreadableStore
from rmqtool.store.index.reader import BadIndex, open_index
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import CommitLog

_FILES, _ENTRIES = 3, 256  # that are looked at, the newest
_MESSAGES = 8  # with tags that have no entry


def has_tag_entries(layout: StoreLayout, log: CommitLog) -> bool:
    """Whether some of the newest entries are for tags of their messages."""
    without = 0
    try:
        for physical, hashes in _newest(layout):
            message = log.read(physical, crc=False)
            tags = parse(message.record.properties).get(TAGS) if message is not None else None
            if message is not None and tags:
                topic = message.record.topic.decode("utf-8", "replace")
                if key_hash(topic, tag_key(tags)) in hashes:
                    return True
                without += 1
                if without == _MESSAGES:
                    break
    except UnreadableStore:
        pass  # reported by what reads the files
    return False


def _newest(layout: StoreLayout) -> Iterator[tuple[int, set[int]]]:
    """(physical offset, hashes) of the messages with the newest entries, the newest first."""
    for view in islice(open_index(layout, whole=False), _FILES):
        if isinstance(view, BadIndex):
            continue
        table = entries_array(view.view, view.slots)[: view.entries]
        count = min(max(view.header.index_count, 0), len(table))
        hashes: dict[int, set[int]] = {}
        for entry in table[max(count - _ENTRIES, 1) : count][::-1]:
            hashes.setdefault(int(entry["physical_offset"]), set()).add(int(entry["key_hash"]))
        yield from hashes.items()
