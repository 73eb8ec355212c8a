"""Copies that a killed process stored are found, and each counts for one message."""

from pathlib import Path

from rmqtool import NewMessage, Store
from rmqtool.services.sending.copies import EarlierCopies, copy_of
from tests.services.live import SIZES


def test_each_copy_counts_for_one_message(tmp_path: Path) -> None:
    """The same message sent twice, delivered once: one of the two is to be delivered."""
    with Store.create(tmp_path / "store", broker_conf=SIZES) as store:
        twins = [
            store.append(NewMessage(topic="Waiting", body=b"x", born_timestamp=7, properties={"UNIQ_KEY": "k"}))
            for _ in range(2)
        ]
        nameless = store.append(NewMessage(topic="Waiting", body=b"x", born_timestamp=7))
        store.dispatch()
        by_place = {message.record.physical_offset: message.record for message in store.messages()}
        first, second, third = (by_place[result.physical_offset] for result in (*twins, nameless))
        store.append(copy_of(first, "T", 1, {"UNIQ_KEY": "k", "rolls": "1"}))
        store.append(copy_of(third, "T", 1, {}))
        store.dispatch()
        end = store.live.end

        def earlier(stop: int = end) -> EarlierCopies:
            return EarlierCopies(store, stop)

        found = earlier()
        assert found.take(first, "T", 1, {})
        assert not found.take(second, "T", 1, {})
        assert not earlier().take(first, "T", 0, {})  # it went to another queue
        assert not earlier().take(first, "Other", 1, {})
        assert not earlier().take(first, "T", 1, {"rolls": "2"})
        assert earlier().take(first, "T", 1, {"rolls": "1"})
        assert not earlier().take(first._replace(reconsume_times=1), "T", 1, {})
        assert not earlier().take(third, "T", 1, {})  # it has no unique id
        assert not earlier(first.physical_offset).take(first, "T", 1, {})  # stored since


def test_the_search_ends_where_copies_end(tmp_path: Path) -> None:
    with Store.create(tmp_path / "store", broker_conf=SIZES) as store:
        for number in range(40):
            store.append(NewMessage(topic="Waiting", body=b"x", properties={"UNIQ_KEY": f"k{number}"}))
        records = [message.record for message in store.messages()]
        copied = records[0], records[20], records[39]
        for record in copied:
            store.append(
                copy_of(record, "T", 0, {"UNIQ_KEY": record.properties.decode().split("\x01")[1].strip("\x02")})
            )
        store.dispatch()
        found = EarlierCopies(store, store.live.end, misses=18)
        assert [record for record in records if found.take(record, "T", 0, {})] == [records[0]]


def test_the_index_may_grow_meanwhile(tmp_path: Path) -> None:
    """Few hash slots: new entries stand before the old ones in their chains, and a new file begins."""
    sizes = SIZES | {"maxHashSlotNum": "3", "maxIndexNum": "100"}
    with Store.create(tmp_path / "store", broker_conf=sizes) as store:
        for topic in ("Waiting", "T"):
            for number in range(30):
                given = {"UNIQ_KEY": f"k{number}"}
                store.append(NewMessage(topic=topic, body=b"x", born_timestamp=7, properties=given))
        records = [message.record for message in store.messages()][:30]
        found = EarlierCopies(store, store.live.end)
        for number, record in enumerate(records):
            assert found.take(record, "T", 0, {}), number
            for new in range(5):
                store.append(NewMessage(topic="New", properties={"UNIQ_KEY": f"n{number}-{new}"}))
