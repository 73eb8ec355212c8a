"""Pops, acks and revivals: what a client gets, what is recorded, and what a kill leaves."""

from dataclasses import replace
from pathlib import Path

import pytest

from formats.config.files_of_5 import ConsumerOrderInfos
from formats.message.properties import parse
from formats.variants.pop_handle import ORDERED, Origin, retry_topic
from rmqtool.services.popping.finishing import NoEffect
from rmqtool.services.popping.in_flight import MessagesInFlight
from rmqtool.services.popping.popping import FROM_MAX, PopRequest
from rmqtool.store.log.commit_log import CommitLog
from tests.services.live import Lab
from tests.services.popping_lab import REVIVE, PopLab

RETRY = "%RETRY%g_T"


def send(lab: Lab, *bodies: str, queue_id: int = 0, **properties: str) -> None:
    for body in bodies:
        lab.send(body, queue_id=queue_id, **properties)


def in_flight(lab: PopLab) -> list[tuple[str, int, int, str]]:
    """Messages in flight according to our own reader."""
    lab.persist()
    waiting = MessagesInFlight(CommitLog(lab.store.layout), lab.now, lab.warnings.append).in_flight()
    return [(message.topic, message.queueId, message.queueOffset, message.state) for message in waiting]


def test_messages_are_handed_out_once_and_come_back_when_they_are_not_acked(tmp_path: Path) -> None:
    lab = PopLab(tmp_path)
    send(lab, "a", "b", "c")
    send(lab, "d", queue_id=1)
    got = lab.pop()
    assert sorted(got.bodies) == ["a", "b", "c", "d"]
    assert (lab.offset(), lab.offset(queue_id=1)) == (3, 1)
    assert lab.pop().bodies == []
    assert in_flight(lab) == [("T", 0, n, "invisible") for n in range(3)] + [("T", 1, 0, "invisible")]
    for body in "ac":
        lab.ack(got.of(body))
    assert [place[1:3] for place in in_flight(lab)] == [(0, 1), (1, 0)]
    lab.wait(9_000)
    assert lab.pop().bodies == []
    lab.wait(5_000)
    lab.wait(1_000)
    again = lab.pop()
    assert sorted(again.bodies) == ["b", "d"]
    assert [record.topic for record in again.records] == [b"T", b"T"]
    assert [record.reconsume_times for record in again.records] == [1, 1]
    assert {parse(record.properties)["1ST_POP_TIME"] for record in again.records} == {str(got.popped.pop_time)}
    assert {handle.origin for handle in again.handles} == {Origin.RETRY_V1}
    for handle in again.handles:
        lab.ack(handle, RETRY)
    for _ in range(8):
        lab.wait(5_000)
    assert lab.pop().bodies == []
    assert in_flight(lab) == []
    assert lab.said.count("made") == 1
    assert f"arrived {RETRY} 0" in lab.said


def test_a_message_that_is_never_acked_comes_again_and_again_with_its_first_pop_time(tmp_path: Path) -> None:
    lab = PopLab(tmp_path)
    send(lab, "a")
    first = lab.pop()
    for times in range(1, 5):
        for _ in range(4):
            lab.wait(5_000)
        got = lab.pop()
        assert [(body, record.reconsume_times) for body, record in zip(got.bodies, got.records, strict=True)] == [
            ("a", times)
        ]
        assert parse(got.records[0].properties)["1ST_POP_TIME"] == str(first.popped.pop_time)


def test_what_a_broker_of_5_3_3_notes_is_noted(tmp_path: Path) -> None:
    """As in the golden store: bodies, keys, tags, and the revive queue of the handle."""
    lab = PopLab(tmp_path, reviveQueueNum="4")
    send(lab, "a", "b")
    got = lab.pop()
    lab.ack(got.of("b"))
    lab.service.finishing.ack("T", "g", got.of("a"), [0, 1], batch=True)
    lab.pop()
    send(lab, "c")
    other = lab.pop()
    assert (got.popped.revive_queue, other.popped.revive_queue) == (0, 2)
    lab.wait(20_000)
    time = got.popped.pop_time
    records = [record for record in lab.records(REVIVE) if record.queue_id == 0]
    assert [record.body.decode() for record in records] == [
        (
            '{"bm":0,"bn":"lab-a","c":"g","d":[0,1],"it":10000,"n":2,'
            f'"pt":{time},"q":0,"reviveTime":{time + 10_000},"ro":0,"so":0,"t":"T"}}'
        ),
        f'{{"ao":1,"bn":"lab-a","c":"g","pt":{time},"q":0,"so":0,"t":"T"}}',
        f'{{"ao":-1,"aol":[0,1],"bn":"lab-a","c":"g","pt":{time},"q":0,"so":0,"t":"T"}}',
    ]
    named = [parse(record.properties) for record in records]
    assert [(row["TAGS"], row["UNIQ_KEY"], int(row["TIMER_DELIVER_MS"]) - time) for row in named] == [
        ("ck", f"T@0@0@g@{time}@lab-a@ck", 9_000),
        ("ack", f"T@0@1@g@{time}@lab-a@ack", 10_000),
        ("bAck", f"T@0@-1@g@{time}@lab-a@ack", 10_000),
    ]


def test_messages_of_a_new_group_come_back_after_a_kill_that_comes_at_once(tmp_path: Path) -> None:
    lab = PopLab(tmp_path)
    lab.send("a")
    lab.state.ensure_group("new")  # as its first request does it; nothing is persisted before the kill
    request = PopRequest(topic="T", group="new", queue_id=-1, most=32, invisible_time=10_000)
    assert lab.service.popping.pop(request).count == 1
    lab.again()
    lab.wait(0)
    lab.wait(20_000)
    lab.wait(5_000)
    assert [record.body for record in lab.records("%RETRY%new_T")] == [b"a"]


def test_a_changed_time_counts_from_now_and_the_old_handle_is_void(tmp_path: Path) -> None:
    lab = PopLab(tmp_path)
    send(lab, "a", "b")
    got = lab.pop()
    lab.ack(got.of("b"))
    lab.now += 2_000
    changed = lab.service.finishing.change("T", "g", got.of("a"), 0, 60_000)
    assert changed == (lab.now, 60_000, got.popped.revive_queue)
    for _ in range(10):
        lab.wait(5_000)
    assert lab.pop().bodies == []
    assert in_flight(lab) == [("T", 0, 0, "invisible")]
    for _ in range(4):
        lab.wait(5_000)
    assert lab.pop().bodies == ["a"]


def test_changes_within_one_millisecond_lose_nothing(tmp_path: Path) -> None:
    lab = PopLab(tmp_path, queues=1)
    send(lab, "a")
    handle = lab.pop().handles[0]
    for _ in range(3):
        changed = lab.service.finishing.change("T", "g", handle, 0, 5_000)
        assert changed is not None
        handle = replace(handle, pop_time=changed.pop_time, invisible_time=changed.invisible_time)
    for _ in range(4):
        lab.wait(5_000)
    assert lab.pop().bodies == ["a"]


def test_where_a_new_group_begins(tmp_path: Path) -> None:
    lab = PopLab(tmp_path, queues=1, initPopOffsetByCheckMsgInMem="false")
    send(lab, "a", "b", "c")
    assert lab.pop(start=FROM_MAX).bodies == ["c"]  # the last one, as in a broker
    other = PopLab(tmp_path / "other", queues=1)
    send(other, "a", "b", "c")
    assert other.pop(start=FROM_MAX).bodies == ["a", "b", "c"]  # all is in memory still
    empty = PopLab(tmp_path / "empty", queues=1)
    assert empty.pop(start=FROM_MAX).bodies == []
    assert empty.offset() == 0


def test_a_group_goes_on_where_it_was_set_to(tmp_path: Path) -> None:
    lab = PopLab(tmp_path, queues=1)
    send(lab, "a", "b", "c")
    lab.pop(most=1)
    lab.resets["T", "g", 0] = 2
    assert lab.pop().bodies == ["c"]
    assert lab.resets == {}
    lab.state.set_offset("T", "g", 0, 99)  # beyond the end: a broker goes back to it
    assert lab.pop().bodies == []
    assert lab.offset() == 3


def test_a_filter_passes_over_what_is_not_wanted(tmp_path: Path) -> None:
    lab = PopLab(tmp_path, queues=1)
    for number in range(10):
        lab.send(f"m{number}", TAGS="ab"[number % 2])
    wanted = {entry.tags_code for entry in lab.service.popping._reading.queue("T", 0).entries()}  # type: ignore[union-attr]
    code = min(wanted)
    got = lab.pop(most=3, accept=lambda entry: entry.tags_code == code)
    assert got.bodies == ["m0", "m2", "m4"]
    assert got.popped.parts[0].queue_offsets == (0, 2, 4)
    lab.ack(got.of("m2"))
    for _ in range(4):
        lab.wait(5_000)
    again = lab.pop(accept=lambda entry: entry.tags_code == code)
    assert sorted(again.bodies) == ["m0", "m4", "m6", "m8"]
    assert lab.pop(accept=lambda entry: False).bodies == []


def test_who_pops_in_order_gets_nothing_more_until_all_is_acked_or_visible(tmp_path: Path) -> None:
    lab = PopLab(tmp_path, queues=1)
    send(lab, "a", "b", "c", "d")
    got = lab.pop(most=2, ordered=True, attempt="x")
    assert got.bodies == ["a", "b"]
    assert (got.popped.revive_queue, got.popped.order_counts, lab.offset()) == (ORDERED, ["0 0 0"], 0)
    assert lab.pop(ordered=True, attempt="y").bodies == []
    assert lab.pop(most=2, ordered=True, attempt="x").bodies == ["a", "b"]  # the answer was lost
    got = lab.pop(most=2, ordered=True, attempt="x")
    lab.ack(got.of("b"))
    assert lab.offset() == 0
    assert lab.pop(ordered=True, attempt="y").bodies == []
    lab.ack(got.of("a"))
    assert lab.offset() == 2
    assert "freed T g 0" in lab.said
    got = lab.pop(ordered=True, attempt="z")
    assert got.bodies == ["c", "d"]
    lab.ack(got.of("c"))
    lab.wait(10_000)
    again = lab.pop(ordered=True, attempt="zz")
    assert again.bodies == ["d"]
    assert again.popped.order_counts == ["0 qo0%3 1;0 0 1"]
    with pytest.raises(NoEffect, match="offset is illegal"):
        lab.service.finishing.ack("T", "g", again.handles[0], [77])
    lab.ack(got.of("d"))  # by a handle of the pop before: it has no effect
    assert lab.offset() == 3
    lab.ack(again.of("d"))
    assert lab.offset() == 4
    assert in_flight(lab) == []


def test_an_ordered_pop_outlives_a_restart(tmp_path: Path) -> None:
    lab = PopLab(tmp_path, queues=1)
    send(lab, "a", "b", "c")
    got = lab.pop(most=2, ordered=True, attempt="x")
    lab.ack(got.of("a"))
    changed = lab.service.finishing.change("T", "g", got.of("b"), 1, 50_000)
    assert changed == (got.popped.pop_time, 50_000, ORDERED)
    lab.state.persist()
    lab.again()
    lab.wait(20_000)
    assert lab.pop(ordered=True, attempt="y").bodies == []
    assert in_flight(lab) == [("T", 0, 1, "invisible")]
    file = ConsumerOrderInfos.parse(Path(lab.path, "config", "consumerOrderInfo.json").read_bytes())
    assert [(name, *info.queue_offsets) for name, queues in file.table.items() for info in queues.values()] == [
        ("T@g", 0, 1)
    ]
    lab.wait(31_000)
    assert "freed T g 0" in lab.said
    assert lab.pop(ordered=True, attempt="y").bodies == ["b", "c"]


def test_newer_retry_topics(tmp_path: Path) -> None:
    lab = PopLab(tmp_path, enableRetryTopicV2="true", popResponseReturnActualRetryTopic="true")
    send(lab, "a")
    lab.pop()
    for _ in range(4):
        lab.wait(5_000)
    again = lab.pop()
    while not again.bodies:  # every second pop looks for the older name
        again = lab.pop()
    assert again.records[0].topic == retry_topic("T", "g", newer=True).encode() == b"%RETRY%g+T"
    assert again.handles[0].origin == Origin.RETRY_V2


def test_an_ack_without_its_checkpoint_holds_nothing_up_for_ever(tmp_path: Path) -> None:
    lab = PopLab(tmp_path, queues=1)
    send(lab, "a", "b")
    got = lab.pop(most=1)
    lost = got.handles[0]
    lab.state.set_offset(REVIVE, "CID_RMQ_SYS_REVIVE_GROUP", 0, 0)  # it was dealt with
    lab.ack(lost)
    lab.wait(20_000)
    assert lab.state.offset(REVIVE, "CID_RMQ_SYS_REVIVE_GROUP", 0) == 0
    lab.timer.finish()
    lab.persist()
    lab.again()
    lab.state.set_offset(REVIVE, "CID_RMQ_SYS_REVIVE_GROUP", 0, 0)
    lab.wait(200_000)
    lab.wait(4_000)
    assert lab.state.offset(REVIVE, "CID_RMQ_SYS_REVIVE_GROUP", 0) == 1


def test_checkpoints_of_what_is_gone_are_passed(tmp_path: Path) -> None:
    lab = PopLab(tmp_path, queues=1)
    send(lab, "a")
    lab.pop()
    lab.state.remove_topic("T")
    for _ in range(4):
        lab.wait(5_000)
    assert lab.bodies(RETRY) == []
    assert lab.state.offset(REVIVE, "CID_RMQ_SYS_REVIVE_GROUP", 0) == 0


def test_looking_changes_nothing(tmp_path: Path) -> None:
    lab = PopLab(tmp_path, queues=1)
    popping = lab.service.popping
    assert not popping.waits("T", "g", -1)
    send(lab, "a", "b")
    assert popping.waits("T", "g", -1)
    messages, rest = popping.peek("T", "g", -1, 1)
    assert (len(messages), rest) == (1, 2)
    assert lab.offset() is None
    lab.pop()
    assert not popping.waits("T", "g", 0)
