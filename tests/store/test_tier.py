"""Stores with a tier: local queues are incomplete, and no command may leave them so that a broker damages the tier."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from formats.config.tiered import TieredMetadata
from formats.versions import V5_3
from rmqtool.errors import Refused
from rmqtool.services.lookup.info import store_info
from rmqtool.store.layout.broker_conf import load
from rmqtool.store.layout.paths import UNIT, StoreLayout
from rmqtool.store.layout.tier_signs import METADATA
from rmqtool.store.repair.rebuild import rebuild
from rmqtool.store.salvage.carve import Salvage
from rmqtool.store.tier.tier import Tier, local_ranges
from tests import roles
from tests.amounts import by_turns
from tests.cli.running import rmqtool
from tests.roles import TIERED, Node, prints


def rows(*args: object) -> list[dict[str, Any]]:
    return [json.loads(line) for line in rmqtool(*args, "--output", "ndjson").out.splitlines()]


@pytest.fixture(scope="module")
def mended(tmp_path_factory: pytest.TempPathFactory) -> Node:
    """The store after ``recover``, read-only."""
    node = roles.unpack(TIERED, "a", tmp_path_factory.mktemp("tiered"))
    result = rmqtool("recover", node.store, "--yes", *node.options())
    assert result.code == 0, result.err
    return node


@pytest.fixture
def node(mended: Node, tmp_path: Path) -> Node:
    """A copy of it, cleanly stopped."""
    return roles.copy(mended, tmp_path)


def layout_of(node: Node) -> StoreLayout:
    return StoreLayout(str(node.store), load(str(node.conf)))


def tier_of(node: Node) -> Tier:
    tier = Tier.of(layout_of(node))
    assert tier is not None
    return tier


def served_by(node: Node) -> set[tuple[str, int, int]]:
    """(topic, queue, queue offset) of messages that a broker would serve: the tier up to its end, then the local
    queue.
    """
    ranges = local_ranges(layout_of(node))
    tier = tier_of(node)
    assert tier.dangers(ranges) == []
    return {
        (topic, queue_id, offset)
        for (topic, queue_id), (low, high) in ranges.items()
        for offset in range(tier.begin(topic, queue_id, low), high)
    }


def entries(rows_: list[dict[str, Any]]) -> set[tuple[str, int, int]]:
    return {(row["cqTopic"], row["cqQueueId"], row["cqOffset"]) for row in rows_}


# -- what the tier has ------------------------------------------------------------------------------------------------


def test_the_tier_and_the_local_queues_are_what_the_broker_served(node: Node) -> None:
    told = roles.served(TIERED)
    assert len(told) == 370
    served = entries(told)
    assert served_by(node) == served
    alone = tier_of(node).all_alone(local_ranges(layout_of(node)))
    ours = {(topic, queue, offset) for (topic, queue), offsets in alone.items() for offset in offsets}
    assert ours == {
        (row["cqTopic"], row["cqQueueId"], row["cqOffset"]) for row in told if row["tier"] and not row["local"]
    }
    assert len(ours) == 229


def test_every_message_of_it_is_read(node: Node) -> None:
    tier = tier_of(node)
    for row in roles.served(TIERED):
        if row["tier"]:
            record = tier.record(row["cqTopic"], row["cqQueueId"], row["cqOffset"])
            assert record is not None
            assert record.physical_offset == row["tierPosition"]
            assert record.store_timestamp == row["message"]["storeTimestamp"]
    assert tier.record("Invoices", 0, 74) is None
    assert tier.record("Nobody", 0, 0) is None


def test_it_is_found_without_settings_and_without_metadata(node: Node) -> None:
    with_settings, without = tier_of(node), Tier.of(StoreLayout(str(node.store)))
    assert without is not None
    assert {key: queue[:2] for key, queue in without.queues.items()} == {
        key: queue[:2] for key, queue in with_settings.queues.items()
    }
    drop_metadata(node)
    walked = tier_of(node)
    assert not walked.known
    assert {key: queue[:2] for key, queue in walked.queues.items()} == {
        key: queue[:2] for key, queue in with_settings.queues.items()
    }


def test_by_the_metadata_where_the_segments_are_elsewhere(node: Node) -> None:
    expected = {key: queue[:2] for key, queue in tier_of(node).queues.items()}
    shutil.rmtree(node.store / "tiered")
    tier = tier_of(node)
    assert (tier.folder, {key: queue[:2] for key, queue in tier.queues.items()}) == (None, expected)
    assert tier.record("Invoices", 0, 5) is None


def drop_metadata(node: Node) -> None:
    for name in ("tieredStoreMetadata.json", "tieredStoreMetadata.json.bak"):
        (node.store / "config" / name).unlink()


# -- queues that are rebuilt, cut or missing --------------------------------------------------------------------------


def test_rebuild_keeps_the_queues_whose_messages_are_in_the_tier_alone(node: Node) -> None:
    before = served_by(node)
    files = sorted(path for path in prints(node.store) if path.startswith("consumequeue/History"))
    assert files
    result = rmqtool("rebuild", node.store, "consumequeue", "--yes", *node.options())
    assert result.code == 0, result.err
    assert served_by(node) == before
    assert files == sorted(path for path in prints(node.store) if path.startswith("consumequeue/History"))
    assert rmqtool("check", node.store, *node.options()).code in (0, 1)


def test_and_so_does_it_without_settings(node: Node) -> None:
    before = served_by(node)
    assert rmqtool("rebuild", node.store, "consumequeue", "index", "checkpoint", "--yes").code == 0
    assert served_by(node) == before


WRITING = {
    "dispatch": ("dispatch",),
    "rebuild": ("rebuild", "consumequeue", "--yes"),
    "recover": ("recover", "--yes"),
    "append": ("append", "LINES"),
    "dlq requeue": ("dlq", "requeue", "billing", "--yes"),
}


def write(node: Node, args: tuple[str, ...]) -> tuple[int, str]:
    lines = node.conf.with_name("lines")
    lines.write_text('{"topic": "History", "body": "one"}\n')
    verb = 2 if args[0] == "dlq" else 1
    typed = [str(lines) if word == "LINES" else word for word in args]
    result = rmqtool(*typed[:verb], node.store, *typed[verb:], *node.options())
    lines.unlink()
    return result.code, result.out + result.err


@pytest.mark.parametrize("name", ["dispatch", "rebuild", "append", "dlq requeue"])
def test_a_local_queue_that_is_gone_is_not_taken_for_an_empty_one(name: str, node: Node) -> None:
    shutil.rmtree(node.store / "consumequeue" / "History")
    (node.store / "abort").unlink(missing_ok=True)
    before = prints(node.store)
    code, told = write(node, WRITING[name])
    if name == "dispatch" and code == 0:  # there is nothing to dispatch, and nothing was written
        assert "do not start a broker" in told
    else:
        assert code == 4, told
        assert "History queue 0: its tier has 0 to 13, but there is no local queue" in told
    assert prints(node.store) == before


def test_recover_names_it_before_anything_else(tmp_path: Path) -> None:
    """With --quick and --exactly, which do only what a broker does."""
    node = roles.unpack(TIERED, "a", tmp_path)
    shutil.rmtree(node.store / "consumequeue" / "History")
    before = prints(node.store)
    for option in ("--quick", "--exactly"):
        plan = rmqtool("recover", node.store, "--dry-run", option, *node.options(), "--output", "json")
        assert "do not start a broker: History queue 0" in plan.out
        refused = rmqtool("recover", node.store, "--yes", option, *node.options())
        assert refused.code == 4
        assert "History queue 0: its tier has 0 to 13" in refused.err
    assert prints(node.store) == before
    assert rmqtool("recover", node.store, "--yes", "--quick", "--accept-loss", *node.options()).code == 0


def files_of(node: Node, topic: str) -> list[Path]:
    return sorted((node.store / "consumequeue" / topic / "0").iterdir())


def zero(file: Path) -> None:
    file.write_bytes(bytes(file.stat().st_size))


DAMAGES: dict[str, Callable[[list[Path]], object]] = {
    "gone": lambda files: shutil.rmtree(files[0].parent),
    "first file gone": lambda files: files[0].unlink(),
    "last file gone": lambda files: files[-1].unlink(),
    "first file zeros": lambda files: zero(files[0]),
    "last file zeros": lambda files: zero(files[-1]),
    "last file noise": lambda files: files[-1].write_bytes(b"\xff" * files[-1].stat().st_size),
    "last file short": lambda files: files[-1].write_bytes(files[-1].read_bytes()[:43]),
}


@by_turns(13)
@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("topic", ["History", "%RETRY%billing", "Invoices"])
def test_recover_ends_a_queue_where_its_tier_does(topic: str, damage: str, node: Node) -> None:
    """Messages only in the tier must neither add entries nor restart the queue."""
    before, served = local_ranges(layout_of(node)), served_by(node)
    low, high = before[topic, 0]
    assert (low == high) is (topic != "Invoices")
    DAMAGES[damage](files_of(node, topic))
    result = rmqtool("recover", node.store, "--yes", *node.options(), "--output", "json")
    assert result.code == 0, result.err
    report = json.loads(result.out)
    assert report["tierDangers"] == []
    assert sum(queue["entriesPutIn"] for queue in report["mended"]) <= high - low
    assert local_ranges(layout_of(node)) == before
    assert served_by(node) == served
    assert rmqtool("recover", node.store, "--dry-run", *node.options()).code == 0


def test_truncate_does_not_cut_below_the_tier(node: Node) -> None:
    listed = rows("consumequeue", "dump", node.store, "--topic", "Invoices", "--queue", 0)
    inside = {row["queueOffset"]: row["physicalOffset"] for row in listed}
    before = prints(node.store)
    refused = rmqtool("truncate", node.store, inside[60], "--yes", *node.options())
    assert (refused.code, prints(node.store)) == (4, before)
    assert "Invoices queue 0: its tier has 0 to 74, but the local queue ends at 60" in refused.err
    assert rmqtool("truncate", node.store, inside[79], "--yes", *node.options()).code == 0


def test_clean_does_not_remove_what_was_not_uploaded(node: Node) -> None:
    folder = next((node.store / "tiered").rglob("Invoices/0/CONSUME_QUEUE"))
    next(folder.glob("*00000001200")).unlink()
    cut(next(folder.glob("*00000000600")), 5 * UNIT)  # a tier that has come to 35 only; the local queue begins at 34
    before = prints(node.store)
    result = rmqtool("clean", node.store, "--hours", "0", "--yes", "--accept-loss", *node.options())
    assert result.code == 4, result.out + result.err
    assert "a broker deletes the whole tier of this queue" in result.err
    assert prints(node.store) == before
    shown = rmqtool("clean", node.store, "--hours", "0", "--dry-run", *node.options())
    assert "do not start a broker: Invoices queue 0" in shown.err


def test_clean_removes_what_the_tier_has(node: Node) -> None:
    before = served_by(node)
    assert rmqtool("clean", node.store, "--hours", "0", "--yes", *node.options()).code == 0
    assert served_by(node) == before


def cut(path: Path, size: int) -> None:
    path.write_bytes(path.read_bytes()[:size])


def test_config_is_mended_by_the_tier_too(node: Node) -> None:
    """A missing local queue does not make an offset exceed the queue's end."""
    shutil.rmtree(node.store / "consumequeue" / "History")
    offsets = node.store / "config" / "consumerOffset.json"
    text = offsets.read_text()
    offsets.write_text(text.replace('"offsetTable":{', '"offsetTable":{"History@old":{0:12},', 1))
    assert rmqtool("rebuild", node.store, "config", "--yes", *node.options()).code == 0
    listed = rows("offsets", node.store, "--group", "old")
    assert [row["consumerOffset"] for row in listed] == [12]


def test_metadata_that_are_lost_are_not_made_empty(node: Node) -> None:
    for name in ("tieredStoreMetadata.json", "tieredStoreMetadata.json.bak"):
        (node.store / "config" / name).write_text("{torn")
    result = rmqtool("rebuild", node.store, "config", "--yes", *node.options())
    assert result.code == 0
    assert "do not start a broker" in result.err
    assert (node.store / "config" / "tieredStoreMetadata.json").read_text() == "{torn"


# -- check ------------------------------------------------------------------------------------------------------------


def codes(node: Node) -> dict[str, list[dict[str, object]]]:
    result: dict[str, list[dict[str, object]]] = {}
    for row in rows("check", node.store, *node.options()):
        result.setdefault(row["code"], []).append(row)
    return result


def test_check_says_the_role_first_and_takes_nothing_for_damage(node: Node) -> None:
    first = rows("check", node.store, *node.options())[0]
    assert (first["code"], first["severity"]) == ("store-role", "info")
    assert "tiered" in str(first["actual"])
    by_code = codes(node)
    assert not {"file-ignored", "offset-expired", "offset-ahead"} & by_code.keys()
    assert {code for code in by_code if code.startswith("tiered-")} == {"tiered-lost", "tiered-undelivered"}
    assert "not-checked" not in by_code


def test_check_warns_of_a_start_without_the_metadata(node: Node) -> None:
    drop_metadata(node)
    by_code = codes(node)["tiered-ignored"]
    assert [(row["severity"], row["count"]) for row in by_code] == [("error", 229)]
    assert "do not start a broker" in str(by_code[0]["fix"])


def test_and_of_a_tier_that_ends_too_early(node: Node) -> None:
    for base in ("00000000000000000600", "00000000000000001200"):
        next((node.store / "tiered").rglob(f"Invoices/0/CONSUME_QUEUE/*{base}")).unlink()
    (finding,) = codes(node)["tiered-deleted"]
    assert (finding["topic"], finding["queueId"], finding["count"]) == ("Invoices", 0, 30)


def test_and_of_a_queue_that_is_gone(node: Node) -> None:
    shutil.rmtree(node.store / "consumequeue" / "History")
    by_code = codes(node)["tiered-stopped"]
    assert [(row["topic"], row["queueId"], row["count"]) for row in by_code] == [("History", n, 13) for n in range(3)]


# -- what commands say of it -------------------------------------------------------------------------------------------


def test_info_counts_what_the_tier_alone_has(node: Node) -> None:
    info = store_info(layout_of(node))
    assert sum(topic.inTierAlone for topic in info.topics) == 229
    assert next(topic for topic in info.topics if topic.topic == "History").inTierAlone == 39
    shown = rmqtool("info", node.store, *node.options(), "-o", "table").out
    assert "in tier alone" in shown
    assert shown.splitlines()[1].startswith("role")


ALL, TOPIC, QUEUE = "229 messages of 11 queues", "39 messages of 3 queues", "13 messages of 1 queue"
RETRIES = "2 messages of 1 queue"
READING = {
    ("commitlog", "dump", "STORE"): ALL,
    ("consumequeue", "dump", "STORE"): ALL,
    ("consumequeue", "dump", "STORE", "--topic", "Hist*"): TOPIC,
    ("query-key", "STORE", "History", "history-1"): TOPIC,
    ("query-offset", "STORE", "History", "0", "5"): QUEUE,
    ("query-time", "STORE", "History", "0", "2026-11-27"): QUEUE,
    ("trace", "STORE", "history-1"): ALL,
    ("dlq", "list", "STORE", "billing"): RETRIES,
    ("retry", "list", "STORE", "billing"): RETRIES,
    ("dump-to-parquet", "STORE", "OUT", "--runner", "local"): ALL,
    ("report", "traffic", "STORE", "--runner", "local"): ALL,
    ("report", "traffic", "STORE", "--runner", "local", "--topic", "History"): TOPIC,
    ("report", "unconsumed", "STORE", "--runner", "local"): ALL,
}  # fmt: skip


@by_turns(2)
@pytest.mark.parametrize("args", READING, ids=" ".join)
def test_reading_commands_say_once_that_the_tier_has_more(args: tuple[str, ...], node: Node, tmp_path: Path) -> None:
    told = rmqtool(*({"STORE": node.store, "OUT": tmp_path / "out"}.get(w, w) for w in args), *node.options()).err
    assert f"warning: {READING[args]}" in told
    assert told.count("in the tier alone") == 1


def test_salvage_counts_and_names_what_it_does_not_take(node: Node, tmp_path: Path) -> None:
    shutil.rmtree(node.store / "tiered")
    report = Salvage(layout_of(node), str(tmp_path / "new")).run()
    assert sum(queue.messages for queue in report.notTaken) == 229
    assert {(queue.topic, queue.queueId, queue.firstOffset, queue.nextOffset) for queue in report.notTaken} >= {
        ("History", 0, 0, 13), ("Invoices", 0, 0, 34),
    }  # fmt: skip
    assert {queue.where for queue in report.notTaken} == {"the tier, whose files are not here"}
    assert not (tmp_path / "new" / "config" / "tieredStoreMetadata.json").exists()
    for target, args in (("other", ()), ("file", ("--to", "ndjson"))):
        result = rmqtool("salvage", node.store, tmp_path / target, *args, *node.options())
        assert result.code == 1
        assert "229 messages of 11 queues are not taken" in result.err
        assert "History queue 0: 13 messages not taken, queue offsets 0 to 12" in result.err


def test_export_refuses_without_the_tier(node: Node, tmp_path: Path) -> None:
    shutil.rmtree(node.store / "tiered")
    result = rmqtool("export", node.store, tmp_path / "new", *node.options())
    assert (result.code, result.err.count("\n")) == (5, 1)
    assert "229 messages are in the tier alone" in result.err
    assert not (tmp_path / "new").exists()


# -- groups: the beginning is the tier's ------------------------------------------------------------------------------


def test_a_group_that_the_tier_serves_is_not_expired(node: Node) -> None:
    lag = {(row["topic"], row["queueId"]): row for row in rows("group", "lag", node.store, "--group", "billing")}
    for queue_id in range(3):
        row = lag["Invoices", queue_id]
        assert (row["minOffset"], row["state"]) == (0, "behind")
        assert row["lastTimestamp"] > 0
    offsets = rows("offsets", node.store, "--group", "billing")
    assert {row["minOffset"] for row in offsets if row["topic"] == "Invoices"} == {0}


def reset(node: Node, *args: str) -> dict[int, int]:
    (plan,) = rows("group", "reset", node.store, "billing", "--topic", "Invoices", *args, "--dry-run", *node.options())
    return {move["queueId"]: move["newOffset"] for move in plan["moves"]}


def test_earliest_is_the_tiers(node: Node) -> None:
    assert reset(node, "--to-earliest") == {0: 0, 1: 0, 2: 0}
    assert reset(node, "--to-offset", "5") == {0: 5, 1: 5, 2: 5}
    assert reset(node, "--to-offset", "0", "--clamp") == {0: 0, 1: 0, 2: 0}


def test_a_time_is_looked_for_in_both(node: Node) -> None:
    times: dict[int, list[tuple[int, int]]] = {}
    for row in roles.served(TIERED):
        if row["cqTopic"] == "Invoices":
            times.setdefault(row["cqQueueId"], []).append((row["cqOffset"], row["message"]["storeTimestamp"]))
    assert reset(node, "--to-time", "2020-01-01T00:00:00Z") == {0: 0, 1: 0, 2: 0}
    for _offset, time in sorted(times[0])[::5]:
        expected = {
            queue: next((offset for offset, at in sorted(result) if at >= time), len(result))
            for queue, result in times.items()
        }
        assert reset(node, "--to-time", str(time)) == expected


def test_the_time_of_what_is_not_here_is_not_guessed(node: Node) -> None:
    shutil.rmtree(node.store / "tiered")
    args = ("group", "reset", node.store, "billing", "--topic", "Invoices", "--dry-run", *node.options())
    refused = rmqtool(*args, "--to-time", "2020-01-01T00:00:00Z")
    assert refused.code == 4
    assert "are in the tier, whose files are not here" in refused.err
    assert reset(node, "--to-earliest") == {0: 0, 1: 0, 2: 0}


def test_library_calls_refuse_as_well(node: Node) -> None:
    shutil.rmtree(node.store / "consumequeue" / "History")
    with pytest.raises(Refused, match="History queue 0"):
        rebuild(layout_of(node), ("consumequeue",))


# -- the metadata file again ------------------------------------------------------------------------------------------


def metadata(node: Node) -> TieredMetadata:
    return TieredMetadata.parse((node.store / "config" / METADATA).read_bytes())


def lose_metadata(node: Node) -> None:
    for path in (node.store / "config").glob(METADATA + "*"):
        path.unlink()


@pytest.mark.parametrize("case", [roles.TIERED, roles.NEW_TIERED])
def test_the_metadata_from_the_segments(case: str, tmp_path: Path) -> None:
    """Lengths, store times, queues and the ids of topics are those that the broker had written."""
    node = roles.unpack(case, "a", tmp_path)
    before, tier = metadata(node), prints(node.store / "tiered")
    codes = {row["code"] for row in rows("check", node.store, *node.options())}
    assert "tiered-ignored" not in codes
    lose_metadata(node)
    assert "tiered-ignored" in {row["code"] for row in rows("check", node.store, *node.options())}
    advice = rmqtool("check", node.store, *node.options()).out
    assert f"rmqtool rebuild {node.store} tiered-metadata" in " ".join(advice.split())
    planned = rmqtool("rebuild", node.store, "tiered-metadata", "--dry-run", *node.options())
    assert "49 segments of 11 queues" in planned.out
    assert not (node.store / "config" / METADATA).exists()
    result = rmqtool("rebuild", node.store, "tiered-metadata", "--yes", *node.options())
    assert result.code == 0, result.err
    after = metadata(node)
    assert [replace(s, create_timestamp=0) for s in after.segments()] == [
        replace(s, create_timestamp=0) for s in before.segments()
    ]
    assert {name: topic.topic_id for name, topic in after.topics.items()} == {
        name: topic.topic_id for name, topic in before.topics.items()
    }
    assert after.topic_serial_number == before.topic_serial_number
    assert {topic: sorted(queues) for topic, queues in after.queues.items()} == {
        topic: sorted(queues) for topic, queues in before.queues.items()
    }
    assert prints(node.store / "tiered") == tier
    assert "tiered-ignored" not in {row["code"] for row in rows("check", node.store, *node.options())}
    assert rmqtool("undo", node.store, "--yes").code == 0
    assert not (node.store / "config" / METADATA).exists()


def test_queues_are_ended_by_a_tier_whose_metadata_are_written_first(node: Node) -> None:
    """recover without the metadata would end them where the log does, so it refuses and names the command."""
    lose_metadata(node)
    shutil.rmtree(node.store / "consumequeue" / "History")
    (node.store / "abort").write_text("1")
    steps = [line.split()[2:4] for line in rmqtool("check", node.store, *node.options()).out.splitlines()
             if line[1:11] == ". rmqtool "]  # fmt: skip
    assert [words[0] for words in steps] == ["rebuild", "recover"]
    refused = rmqtool("recover", node.store, "--yes", *node.options())
    assert (refused.code, f"rmqtool rebuild {node.store} tiered-metadata" in refused.err) == (4, True)
    for words in (("rebuild", node.store, "tiered-metadata"), ("recover", node.store)):
        result = rmqtool(*words, "--yes", *node.options())
        assert result.code == 0, result.err
    listed = rows("tier", "list", node.store, *node.options())
    assert [row["localMaxOffset"] for row in listed if row["topic"] == "History"] == [13, 13, 13]


def test_metadata_in_order_stays(node: Node) -> None:
    before = (node.store / "config" / METADATA).read_bytes()
    result = rmqtool("rebuild", node.store, "tiered-metadata", "--yes", *node.options())
    assert (result.code, "is already in its metadata" in result.err) == (0, True)
    assert (node.store / "config" / METADATA).read_bytes() == before


def test_a_segment_that_the_metadata_does_not_know(node: Node) -> None:
    """What the file says of the others stays."""
    path = node.store / "config" / METADATA
    whole = metadata(node)
    less = replace(
        whole, commit_logs={name: table for name, table in whole.commit_logs.items() if "History" not in name}
    )
    path.write_bytes(less.build(V5_3))
    assert rmqtool("rebuild", node.store, "tiered-metadata", "--yes", *node.options()).code == 0
    after = metadata(node)
    known = {(s.path, s.type, s.base_offset) for s in less.segments()}
    assert [s for s in after.segments() if (s.path, s.type, s.base_offset) in known] == [*less.segments()]
    assert len([*after.segments()]) == len([*whole.segments()])
    assert after.topics == whole.topics


def test_a_tier_of_several_brokers_needs_a_name(node: Node) -> None:
    lose_metadata(node)
    [cluster] = (node.store / "tiered").iterdir()
    shutil.copytree(cluster / "store-1", cluster / "store-2")
    bare = rmqtool("rebuild", node.store, "tiered-metadata", "--yes")
    assert (bare.code, "give --broker-conf, which has brokerName" in bare.err) == (4, True)
    assert rmqtool("rebuild", node.store, "tiered-metadata", "--yes", *node.options()).code == 0
    assert {s.path.partition("/")[0] for s in metadata(node).segments()} == {"store-1"}


def test_a_segment_in_a_place_that_no_broker_makes_is_left_out(node: Node) -> None:
    lose_metadata(node)
    [cluster] = (node.store / "tiered").iterdir()
    for place in ("store-1/Orders", "store-1/Orders/x", "store-1/a/b/c"):
        (cluster / place / "COMMIT_LOG").mkdir(parents=True)
        [segment, *_more] = sorted((cluster / "store-1" / "History" / "0" / "COMMIT_LOG").iterdir())
        shutil.copy(segment, cluster / place / "COMMIT_LOG")
    result = rmqtool("rebuild", node.store, "tiered-metadata", "--yes", *node.options())
    assert (result.code, result.err.count("not below BROKER/TOPIC/QUEUE: left out")) == (0, 3)
    assert all(s.path.count("/") == 2 and s.path.split("/")[2].isdecimal() for s in metadata(node).segments())


def test_metadata_of_a_tier_that_a_broker_would_delete(node: Node) -> None:
    """The file is written, and says what the next start does all the same."""
    lose_metadata(node)
    for path in (node.store / "tiered").rglob("Invoices/0/CONSUME_QUEUE/*"):
        if not path.name.endswith("0" * 20):
            path.unlink()
    result = rmqtool("rebuild", node.store, "tiered-metadata", "--yes", *node.options())
    assert result.code == 0
    assert "do not start a broker: Invoices queue 0: its tier has 0 to 30" in result.err


def test_a_store_without_a_tier_has_no_metadata(golden: Callable[[str], Path]) -> None:
    result = rmqtool("rebuild", golden("broker"), "tiered-metadata", "--yes")
    assert (result.code, "it has no tiered storage" in result.err) == (2, True)
