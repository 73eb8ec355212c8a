"""Append rows of machine output to a store; used by ``append`` and ``import``."""

import os
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from formats.config.files import Topics
from formats.topics import HALF
from rmqtool.contract import message_fields
from rmqtool.rules.releases import NEWEST, Release
from rmqtool.services.open_store.store import Store
from rmqtool.store.append.answers import PutResult
from rmqtool.store.append.create import create
from rmqtool.store.append.outgoing import NewMessage
from rmqtool.store.disk.new_files import give_away, make_file
from rmqtool.store.disk.work_folder import WorkFolder, prepare_target
from rmqtool.store.layout.broker_conf import load
from rmqtool.store.layout.paths import checked_path

_PART = ".importing"  # suffix until the store is complete
_HOLDS = (
    "abort", "batchconsumequeue", "checkpoint", "commitlog", "config", "consumequeue", "consumequeue_ext", "index",
    "lock", "timerlog",
)  # fmt: skip
_HALVES = 1 << 20  # half messages to remember; a commit follows its half message soon

Row = Mapping[str, Any]
Answer = PutResult | str  # or why a row is not a message


class Importer:
    """Appends rows.

    Args:
        store: open for writing.
        keep_times: keep the messages' store timestamps.
    """

    def __init__(self, store: Store, *, keep_times: bool) -> None:
        self.store, self._keep_times = store, keep_times
        self._halves: OrderedDict[int, int] = OrderedDict()  # physical offset in the rows → new one

    def take(self, rows: Sequence[Row | ValueError]) -> list[Answer]:
        """Append rows in order; the answer for each.

        A committed transaction message points to its half message; if that was appended before, to its new position.

        Args:
            rows: rows, or the error if one could not be read.
        """
        answers: list[Answer] = []
        messages: list[NewMessage] = []
        places: list[int] = []  # index of each message in the answers
        halves: dict[int, int] = {}  # physical offset in the rows → index of the message

        def append() -> None:
            results = self.store.append_many(messages)
            for place, result in zip(places, results, strict=True):
                answers[place] = result
            for old, position in halves.items():
                self.remember(old, results[position].physical_offset)
            messages.clear()
            places.clear()
            halves.clear()

        for row in rows:
            try:
                if isinstance(row, ValueError):
                    raise row
                message = NewMessage(**message_fields(row, keep_times=self._keep_times))
            except ValueError as err:
                answers.append(str(err))
                continue
            if (prepared := message.prepared_transaction_offset) in halves:
                append()
            message.prepared_transaction_offset = self._halves.get(prepared, prepared)
            if message.topic == HALF and isinstance(old := row.get("physicalOffset"), int):
                halves[old] = len(messages)
            places.append(len(answers))
            answers.append("")
            messages.append(message)
        append()
        return answers

    def remember(self, old: int, new: int) -> None:
        """Note where a half message is now, for the message that commits it.

        Args:
            old: its physical offset in the rows.
            new: its physical offset in the store; negative if it was refused.
        """
        if new >= 0:
            self._halves[old] = new
            if len(self._halves) > _HALVES:
                self._halves.popitem(last=False)


@contextmanager
def new_store(
    path: str,
    broker_conf: str | None,
    *,
    release: Release = NEWEST,
    keep_times: bool = True,
    topics: Topics | None = None,
) -> Iterator[Importer]:
    """An importer into a new store, which appears at ``path`` only if everything succeeds.

    Args:
        topics: topic table of the new store; topics with batch queues keep them, which requires a release of 5.x.

    Raises:
        Refused: ``path`` already exists.
    """
    path = os.path.realpath(checked_path(path))  # a link is kept; its target becomes the store
    prepare_target(path)
    with WorkFolder(path + _PART, holds=_HOLDS) as work:
        give_away(work.path)
        layout = create(work.path, load(broker_conf) if broker_conf else None, release)
        if topics is not None:
            make_file(layout.path("config", "topics.json"), topics.build(release.version))
        with Store(work.path, write=True, broker_conf=broker_conf, release=release) as store:
            try:
                yield Importer(store, keep_times=keep_times)
            except BaseException:
                store.live.abandon()  # it will be deleted
                raise
        work.become(path)
