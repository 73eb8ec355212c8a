"""Rules of sending: validation, automatic topics, compression, batches, ids, queue selection.

``tests/interop/test_client_rules.py`` compares them with the real client.
"""

import threading
from datetime import UTC, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.message.bodies import decompress
from formats.message.ids import parse_unique_id
from formats.model.topics import TopicConfig
from rmqtool.rules import sending as send_rules
from rmqtool.rules.broadcast import QueueName
from rmqtool.rules.ids import UniqueIds, month_of
from rmqtool.rules.queue_selection import Faults, QueueIndex, Selector, unavailable
from rmqtool.rules.releases import V4_9, V5_3
from rmqtool.rules.sending import Rejected, batch_properties, check_at_broker, check_batch, check_message

HALF_MINUTE = 30_000


def code_of(rule: object, *arguments: object, **named: object) -> int | None:
    """The code with which a rule refuses, or None."""
    try:
        rule(*arguments, **named)  # type: ignore[operator]
    except Rejected as err:
        return err.code
    return None


# -- validation -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("topic", "body", "code"),
    [("Orders", b"x", None), ("%RETRY%g", b"x", None), ("a b", b"x", -1), ("", b"x", -1), ("x" * 128, b"x", -1),
     ("SCHEDULE_TOPIC_XXXX", b"x", -1), ("TBW102", b"x", None), ("Orders", None, 13), ("Orders", b"", 13),
     ("Orders", bytes(4 << 20), None), ("Orders", bytes((4 << 20) + 1), 13)],
)  # fmt: skip
def test_messages(topic: str, body: bytes | None, code: int | None) -> None:
    assert code_of(check_message, topic, body) == code


CONFIG = TopicConfig(topic_name="T", read_queue_nums=4, write_queue_nums=2)
ORDERED = TopicConfig(topic_name="T", order=True)


@pytest.mark.parametrize(
    ("topic", "queue_id", "config", "perm", "code"),
    [("T", 0, CONFIG, 6, None), ("T", 3, CONFIG, 6, None), ("T", 4, CONFIG, 6, 1), ("T", -1, CONFIG, 6, None),
     ("T", 0, None, 6, 17), ("OFFSET_MOVED_EVENT", 0, CONFIG, 6, 16), ("a b", 0, CONFIG, 6, 1),
     ("T", 0, ORDERED, 4, 16), ("T", 0, CONFIG, 4, None), ("T", 0, ORDERED, 6, None)],
)  # fmt: skip
def test_at_the_broker(topic: str, queue_id: int, config: TopicConfig | None, perm: int, code: int | None) -> None:
    assert code_of(check_at_broker, topic, queue_id, config, broker_perm=perm) == code


def test_a_code_of_its_own_in_5_3() -> None:
    for topic, queue_id, code in (("a b", 0, 29), ("T", 4, 29), ("T", 3, None), ("OFFSET_MOVED_EVENT", 0, 16)):
        assert code_of(check_at_broker, topic, queue_id, CONFIG, release=V5_3) == code


def test_topics_made_on_the_way() -> None:
    template = TopicConfig(topic_name="TBW102", read_queue_nums=8, write_queue_nums=8, perm=7)
    made = send_rules.auto_create("T", "TBW102", template, 4)
    assert made is not None
    assert (made.topic_name, made.read_queue_nums, made.write_queue_nums, made.perm) == ("T", 4, 4, 6)
    few = send_rules.auto_create("T", "TBW102", template, 16)
    assert few is not None
    assert few.write_queue_nums == 8
    assert send_rules.auto_create("T", "TBW102", template, 4, enabled=False) is None
    assert send_rules.auto_create("T", "Cluster", template, 4, enabled=False) is not None
    assert send_rules.auto_create("T", "Other", CONFIG, 4) is None
    assert send_rules.auto_create("T", "none", None, 4) is None
    retry = send_rules.auto_create("%RETRY%g", "TBW102", template, 4, enabled=False)
    assert retry is not None
    assert (retry.read_queue_nums, retry.write_queue_nums, retry.perm) == (1, 1, 6)


# -- compression ------------------------------------------------------------------------------------------------------


@given(st.integers(0, 9000), st.sampled_from(["zlib", "lz4", "zstd"]), st.integers(0, 9), st.sampled_from([0, 4, 0x12]))
def test_compression(size: int, kind: str, level: int, sys_flag: int) -> None:
    body = bytes(range(256)) * 40
    sent, flag = send_rules.compress(body[:size], sys_flag, kind=kind, level=level)
    if size < 4096:
        assert (sent, flag) == (body[:size], sys_flag)
    else:
        assert flag == sys_flag | 1 | {"lz4": 0x100, "zstd": 0x200, "zlib": 0x300}[kind]
        assert decompress(sent, flag) == body[:size]


def test_the_flag_of_the_reference() -> None:
    assert send_rules.compress(bytes(4096), 4)[1] == 773


# -- batches ----------------------------------------------------------------------------------------------------------


def test_properties_of_a_batch() -> None:
    assert batch_properties({"WAIT": "true", "TAGS": "A"}) == {"WAIT": "true"}
    assert batch_properties({}, "B") == {"WAIT": "true", "UNIQ_KEY": "B"}
    assert batch_properties({"WAIT": "false"}) == {"WAIT": "false"}


def test_what_may_not_go_together() -> None:
    plain: tuple[str, dict[str, str]] = ("T", {})
    for other in (("U", {}), ("T", {"WAIT": "false"}), ("T", {"DELAY": "1"}), ("T", {"DELAY": "soon"})):
        with pytest.raises(Rejected):
            check_batch([plain, other])
    with pytest.raises(Rejected):
        check_batch([])
    check_batch([plain, ("T", {"WAIT": "true", "DELAY": "0"})])


# -- ids --------------------------------------------------------------------------------------------------------------

NOW = 1_727_700_000_000
SHIFTED = timezone(timedelta(hours=8))


def test_the_id_of_the_reference() -> None:
    parts = parse_unique_id("C000020A1DD45FFD2B2766FEC3000001")
    start, _next = month_of(NOW, UTC)
    ids = UniqueIds(b"\xc0\x00\x02\x0a", 0x1DD4, 0x5FFD2B27, lambda: start + 0x66FEC300, UTC)
    assert [ids(), ids()][1] == "C000020A1DD45FFD2B2766FEC3000001"
    assert (parts.address, parts.process_id, parts.counter) == ("192.0.2.10", 0x1DD4, 1)


@given(st.integers(1_500_000_000_000, 2_500_000_000_000), st.sampled_from([UTC, SHIFTED]), st.sampled_from([4, 16]))
def test_ids_read_back(now: int, zone: timezone, size: int) -> None:
    made = UniqueIds(bytes(range(1, size + 1)), 99, 7, lambda: now, zone)()
    assert len(made) == 2 * (size + 12)
    parts = parse_unique_id(made, now)
    assert (parts.process_id, parts.loader_hash, parts.timestamp) == (99, 7, now)


def test_ids_over_the_end_of_a_month() -> None:
    start, following = month_of(NOW, UTC)
    times = iter([NOW, following - 1, following, following - 5])
    ids = UniqueIds(bytes(4), 1, 1, lambda: next(times), UTC)
    millis = [parse_unique_id(ids()).millis_of_month for _ in range(3)]
    assert millis == [following - 1 - start, 0, 0]


def test_no_id_comes_twice() -> None:
    ids = UniqueIds(bytes(4), 1, 1, lambda: NOW, UTC)
    made: list[str] = []

    def work() -> None:
        made.extend(ids() for _ in range(5000))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(made)) == 20_000
    with pytest.raises(ValueError):
        UniqueIds(bytes(5), 1, 1, lambda: NOW)


# -- choice of queues -------------------------------------------------------------------------------------------------

BROKERS = st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=9)


@given(BROKERS, st.integers(-(2**31), 2**31 - 1), st.sampled_from([None, "a", "b", "x"]))
def test_the_broker_that_failed_is_avoided(brokers: list[str], start: int, last: str | None) -> None:
    queues = [QueueName("T", broker, n) for n, broker in enumerate(brokers)]
    chosen = Selector(queues, QueueIndex(start)).select(last)
    assert chosen in queues
    assert chosen.broker_name != last or set(brokers) == {last}


@given(st.integers(1, 9), st.integers(0, 2**31 - 20))
def test_queues_come_in_turn(count: int, start: int) -> None:
    queues = [QueueName("T", "a", n) for n in range(count)]
    selector = Selector(queues, QueueIndex(start))
    assert {selector.select() for _ in queues} == set(queues)


@given(
    BROKERS, st.sets(st.sampled_from(["a", "b", "c", "gone"])), st.integers(0, 2**31 - 100)
)  # where Java's int wraps
def test_brokers_that_are_left_out(brokers: list[str], slow: set[str], start: int) -> None:
    queues = [QueueName("T", broker, brokers[:n].count(broker)) for n, broker in enumerate(brokers)]
    now = [1000]
    faults = Faults(lambda: now[0], QueueIndex(start), V4_9)
    for number, broker in enumerate(sorted(slow)):
        faults.put(broker, 100 + number, HALF_MINUTE)
    nums = {broker: brokers.count(broker) for broker in brokers}
    selector = Selector(queues, QueueIndex(start), faults, nums)
    for _ in range(5):
        chosen = selector.select("a")
        assert chosen in queues
        assert chosen.broker_name not in slow or set(brokers) <= slow
    now[0] += HALF_MINUTE
    assert all(faults.available(broker) for broker in (*brokers, "gone"))


def test_how_long_a_broker_is_left_out() -> None:
    times = [0, 49, 50, 549, 550, 1000, 2000, 3000, 15_000, 10**9]
    assert [unavailable(time, V4_9) // 1000 for time in times] == [0, 0, 0, 0, 30, 60, 120, 180, 600, 600]
    assert [unavailable(time, V5_3) // 1000 for time in (549, 550, 1800, 3000, 5000, 15_000)] == [0, 2, 5, 6, 10, 30]
    for release, seconds in ((V4_9, 600), (V5_3, 10)):
        now = [0]
        faults = Faults(lambda: now[0], QueueIndex(0), release)  # noqa: B023 - called within this turn
        faults.update("a", 3, isolation=True)
        now[0] = 1000 * seconds - 1
        assert not faults.available("a")
        now[0] += 1
        assert faults.available("a")
        faults.update("a", 3, isolation=False)
        assert faults.available("a")
    assert Faults(lambda: 0, QueueIndex(0), V5_3).pick() is None
