"""Why a group's offset is beyond a message, as far as the store can tell.

Brokers keep no list of what was consumed: an offset beyond a message says that the group has consumed it, was not given
it, or was moved past it. The conditions of SQL92 subscriptions are kept (consumerFilter.json), those by tags are not.
"""

from collections.abc import Collection, Mapping
from contextlib import suppress

from formats.config.files import ConsumerFilters, ConsumerOffsets
from formats.errors import FormatError
from formats.sql92.filter import BadFilter, compile_filter
from rmqtool.errors import RmqError
from rmqtool.services.lookup.configs import Warn, look_at_config
from rmqtool.services.lookup.offsets import FILES
from rmqtool.store.changes import manifest as manifests
from rmqtool.store.changes.places import Places
from rmqtool.store.changes.prints import print_of, same
from rmqtool.store.changes.runs import runs
from rmqtool.store.disk.remote import is_dir
from rmqtool.store.disk.segments import read_small
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.layout.version import release_of

NOT_YET = "not yet"
FILTERED = "filtered"
RESET = "reset"
ACKED = "acked"
GIVEN_BACK = "given back"
CONSUMED = "consumed, or filtered by tag"
_RESETS = ("group-reset", "group-clone")


class Passed:
    """What a store knows of why offsets are where they are."""

    def __init__(self, layout: StoreLayout, warn: Warn) -> None:
        self._layout, self._warn = layout, warn
        self._filters: ConsumerFilters | None = None
        self._before: Mapping[tuple[str, str, int], int] | None = None

    def why(
        self,
        group: str,
        topic: str,
        queue_id: int,
        queue_offset: int,
        consumer_offset: int,
        properties: Mapping[str, str],
        events: Collection[str],
    ) -> str:
        """Why a group is past a message, or that it is not.

        Args:
            properties: of the message.
            events: what happened to this copy in this group, as :class:`rmqtool.services.waiting.trace.Event` has it.
        """
        if "acked" in events:
            return ACKED
        if consumer_offset <= queue_offset:
            return NOT_YET
        if {"retry", "retry-delayed", "dead-letter", "revived"} & set(events):
            return GIVEN_BACK
        if (condition := self._leaves_out(group, topic, properties)) is not None:
            return f"{FILTERED}: {condition}"
        before = self._before_reset().get((topic, group, queue_id))
        if before is not None and before <= queue_offset:
            return RESET
        return CONSUMED

    def _leaves_out(self, group: str, topic: str, properties: Mapping[str, str]) -> str | None:
        """The condition of the group that the message does not meet; None where there is none, or it does."""
        if self._filters is None:
            found = look_at_config(self._layout, "consumerFilter.json", self._warn)
            self._filters = found if isinstance(found, ConsumerFilters) else ConsumerFilters()
        filters = self._filters.topics.get(topic)
        one = filters.groups.get(group) if filters is not None else None
        if one is None or one.dead or one.expression_type != "SQL92" or one.expression is None:
            return None
        try:
            matches = compile_filter(one.expression, wide=release_of(self._layout).knows_wide_filters)
        except BadFilter:
            return None
        return None if matches(properties) else one.expression

    def _before_reset(self) -> Mapping[tuple[str, str, int], int]:
        """Offsets before the last reset or clone of ours, where what it wrote still stands; else nothing."""
        if self._before is None:
            self._before = {}
            with suppress(OSError, RmqError, FormatError):  # what cannot be told of the past is not told
                self._before = self._replaced()
        return self._before

    def _replaced(self) -> dict[tuple[str, str, int], int]:
        if not is_dir(self._layout.root):
            return {}
        places = Places.of(self._layout)
        found: dict[tuple[str, str, int], int] = {}
        for run in runs(places):
            if run.head is None or run.head.command not in _RESETS or run.state != "done":
                continue
            for action in manifests.read(run.path, places).actions:
                name = action.path.rpartition("/")[2]
                if name not in FILES or action.kept is None or not same(print_of(action.path), action.put):
                    continue
                data = read_small(f"{run.path}/{action.kept}")
                for entry in ConsumerOffsets.parse(data or b"{}").entries():
                    found[entry.topic, entry.group, entry.queue_id] = entry.offset
        return found
