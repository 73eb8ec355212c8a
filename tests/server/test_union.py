"""Several copies of a store served as one: every message that is intact in any of them, at its queue offset."""

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from formats.message.read import Record
from formats.remoting import headers as h
from formats.remoting.codes import RequestCode as C
from formats.remoting.fields import from_fields, to_fields
from formats.remoting.frame import Command
from rmqtool.errors import Refused
from rmqtool.remoting.connection import Connection
from rmqtool.services.comparison.replicas import rank_copies
from rmqtool.services.lookup.query import Search
from rmqtool.services.open_store.union import Union, UnionReading, UnionStore
from rmqtool.store.layout.broker_conf import load
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import CommitLog, LocatedRecord
from tests import copies, roles
from tests.amounts import by_turns, some
from tests.cli.running import rmqtool
from tests.copies import identity
from tests.server.serving import pull, records, serving
from tests.services.build import never

Place = tuple[str, int, int]


def ranked(nodes: list[roles.Node]) -> list[StoreLayout]:
    return rank_copies([StoreLayout(str(node.store), load(str(node.conf))) for node in nodes], lambda _text: None)


def everything(store: UnionStore) -> Iterator[tuple[Place, Record]]:
    """Every message that consumers get, pulled from the beginning of each queue."""
    reading = UnionReading(store)
    for topic, queue_id in store.union.units:
        at = reading.min_offset(topic, queue_id)
        while at < reading.max_offset(topic, queue_id):
            pulled = reading.pull_records(topic, queue_id, at, 32)
            for record in records(pulled.records):
                yield (topic, queue_id, record.queue_offset), record
            assert pulled.next_begin_offset > at
            at = pulled.next_begin_offset


def queued(layout: StoreLayout) -> dict[Place, copies.Identity]:
    """Every message of a log that is in a queue, by its place."""
    items = [item for item in CommitLog(layout).walk() if isinstance(item, LocatedRecord)]
    return {
        (item.record.topic.decode(), item.record.queue_id, item.record.queue_offset): identity(item.record)
        for item in items
        if not item.record.sys_flag & 4  # prepared and rolled back
    }


@pytest.mark.parametrize("case", [roles.OLD_DLEDGER, roles.CONTROLLER, roles.SLAVE, roles.NEW_SLAVE])
def test_all_copies_of_a_group(case: str, tmp_path: Path) -> None:
    nodes = roles.unpack_all(case, tmp_path)
    layouts = ranked(nodes)
    before = [roles.prints(node.store) for node in nodes]
    wanted: dict[Place, copies.Identity] = {}
    for layout in reversed(layouts):  # the first one counts
        wanted |= queued(layout)
    served = dict(everything(UnionStore(layouts, never)))
    assert {place: identity(record) for place, record in served.items()} == wanted
    assert [roles.prints(node.store) for node in nodes] == before


def test_what_the_real_brokers_served_together(tmp_path: Path) -> None:
    nodes = roles.unpack_all(roles.OLD_DLEDGER, tmp_path)
    served = dict(everything(UnionStore(ranked(nodes), never)))
    told = {(row["cqTopic"], row["cqQueueId"], row["cqOffset"]) for row in roles.served(roles.OLD_DLEDGER)}
    assert told <= served.keys()
    assert len(told) > 300


def test_two_histories_are_refused_with_a_way_out(tmp_path: Path) -> None:
    nodes = roles.unpack_all(roles.DLEDGER, tmp_path)
    with pytest.raises(Refused, match=r"queue offset \d+ has two messages, .*rmqtool salvage .* NEWSTORE"):
        Union(ranked(nodes), lambda _text: None)
    served = {}
    for left_out in nodes:
        with suppress(Refused):
            served[left_out.store.name] = dict(
                everything(UnionStore(ranked([n for n in nodes if n != left_out]), never))
            )
    told = {(row["cqTopic"], row["cqQueueId"], row["cqOffset"]) for row in roles.served(roles.DLEDGER)}
    assert len(served) == 1  # without the one that was a leader alone
    assert all(told <= messages.keys() for messages in served.values())


@by_turns(2)
@pytest.mark.parametrize("seed", range(some(12, 100)))
def test_randomly_damaged_copies(seed: int, tmp_path: Path) -> None:
    rng, case = Random(seed), (roles.SLAVE, roles.NEW_SLAVE, roles.CONTROLLER)[seed % 3]
    (tmp_path / "originals").mkdir()
    source = copies.source_of.__wrapped__(case, tmp_path / "originals")
    layouts, whole = [], []
    for number in range(3):
        store = tmp_path / f"copy-{number}"
        copies._copy(source.node.store, store)
        copies.damage(rng, store, source.pieces)
        layouts.append(StoreLayout(str(store), load(str(source.node.conf))))
        whole.append(copies._whole(store, source.pieces))
    anywhere = [source.pieces[number].record for number in set.union(*whole)]
    wanted = {identity(record): record.queue_offset for record in anywhere if not record.sys_flag & 4}
    sent = {piece.record.body for piece in source.pieces}
    notes: list[str] = []
    refused = ""
    try:
        store = UnionStore(rank_copies(layouts, notes.append), notes.append)
    except Refused as err:  # bits of a queue offset, which no checksum covers
        refused = str(err)
    if refused:
        assert "NEWSTORE" in refused
        return
    result = [(identity(record), record.queue_offset) for _place, record in everything(store)]
    assert [key for key, number in Counter(result).items() if number > 1] == []
    assert {key[0][2] for key in result} <= sent
    missing = wanted.items() - set(result)
    assert len(missing) <= sum("contradict" in text or "impossible" in text for text in notes) * 4, missing


def test_over_a_connection(tmp_path: Path) -> None:
    """Sends are refused, a queue is drained from one copy to the next, and offsets are kept beside the first."""
    nodes = roles.unpack_all(roles.NEW_SLAVE, tmp_path)
    layouts = ranked(nodes)
    (topic, queue_id), (first, units) = next(
        (key, units) for key, units in Union(layouts, never).units.items() if len(units[1]) > 200
    )
    last = first + len(units) // 20
    offsets = tmp_path / "offsets.csv"

    async def test(client: Connection) -> None:
        got, at = [], first
        while True:
            answer = await client.call(Command(C.PULL_MESSAGE, fields=pull(at, topic=topic, queue_id=queue_id)))
            if answer.code:
                break
            got += records(answer.body)
            at = from_fields(h.PullResponse, answer.fields).next_begin_offset
        assert [record.queue_offset for record in got] == list(range(first, last))
        fields = to_fields(h.Commit(consumer_group="g", topic=topic, queue_id=queue_id, commit_offset=at))
        assert not (await client.call(Command(C.UPDATE_CONSUMER_OFFSET, fields=fields))).code

    serving(
        Path(layouts[0].root), test, broker_conf=dict(layouts[0].conf.values), read_only=True,
        copies=tuple(layouts), offsets=str(offsets),
    )  # fmt: skip
    assert offsets.read_text().splitlines()[1].startswith(f"g,{topic},{queue_id},{last},")


def test_keys_ids_and_tables_of_all_copies(tmp_path: Path) -> None:
    nodes = roles.unpack_all(roles.CONTROLLER, tmp_path)
    layouts = ranked(nodes)
    reading = UnionReading(UnionStore(layouts, never))
    for layout in layouts:
        item = next(item for item in CommitLog(layout).walk() if isinstance(item, LocatedRecord))
        there = reading.message(item.physical_offset)
        assert there is not None
        assert identity(there.record) == identity(item.record)
    assert reading.message(1 << 40) is None
    assert reading.by_key("nobody", "nothing", Search(limit=5)) == []


def test_the_command_wants_read_only(tmp_path: Path) -> None:
    nodes = [str(node.store) for node in roles.unpack_all(roles.NEW_SLAVE, tmp_path)]
    for args in ((), ("--follow",)):
        result = rmqtool("serve", *nodes, *args)
        assert (result.code, "several copies of a store are only served with --read-only" in result.err) == (2, True)
