"""Commands for messages and groups: output formats, exit codes, and what they write."""

import csv
import io
import json
import re
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from tests.amounts import by_turns
from tests.cli import hostile
from tests.cli.running import Result, rmqtool
from tests.cli.test_fuzz import DAMAGE, EXAMPLES, MOST_SECONDS, checked, damage, fingerprint
from tests.conftest import Unpacked
from tests.services import lab
from tests.services.build import Builder

DEAD = "FD0000000000000000000000000000020FB630946E09664343CD0000"  # order-0
GIVEN_UP = "FD0000000000000000000000000000020FB630946E0966434BC201ED"  # tx-5
AT = ("--at", str(lab.STOPPED))

# words of a command that answers in rows, with STORE for the store; and how many the golden broker has
ROWS: dict[str, int] = {
    f"delay list STORE {' '.join(AT)}": 5,
    f"delay list STORE --all {' '.join(AT)}": 18,
    f"delay due STORE --all {' '.join(AT)}": 6,
    f"delay due STORE {' '.join(AT)}": 0,
    "transaction list STORE": 18,
    "transaction list STORE --state given-up --state rolled-back": 9,
    "transaction list STORE --group lab-* --limit 3": 3,
    "transaction list STORE --group nobody": 0,
    "retry list STORE": 20,
    "retry list STORE --state dead --limit 4": 4,
    "retry list STORE --state waiting": 0,
    "dlq list STORE": 16,
    "dlq list STORE --group lab-orderly": 0,
    "dlq export STORE --limit 7": 7,
    "group list STORE": 10,
    "group lag STORE": 24,
    "group lag STORE --group lab-orderly --by topic": 2,
    "group lag STORE --by group": 3,
    "group lag STORE --lagging": 0,
    "group offsets STORE": 24,
    "group offsets STORE --topic Ord*": 4,
    "group diff STORE STORE --all": 24,
    "group diff STORE --bak": 0,
    "topic list STORE": 8,
    "topic list STORE --system": 19,
    "topic list STORE --topic *TRANS*": 3,
    "topic unused STORE": 0,
    "rebalance plan STORE Orders --consumer c1 --consumer c2 --was c1": 4,
}
OBJECTS = {
    f"trace STORE {DEAD}": "events",
    f"transaction show STORE {GIVEN_UP}": "copies",
    "topic show STORE Orders": "queueTable",
    "group reset STORE lab-consumer --to-latest --dry-run": "moves",
}
EVERY = [*ROWS, *OBJECTS]


def run(line: str, store: object, *more: object) -> Result:
    return rmqtool(*[store if word == "STORE" else word for word in line.split()], *more)


def as_csv(value: Any) -> str:
    """A JSON value as a CSV cell."""
    if value is None:
        return ""
    if isinstance(value, list):
        return " ".join(map(str, value))
    if isinstance(value, bool):
        return "true" if value else "false"
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")) if isinstance(value, dict) else str(value)


@by_turns(2)
@pytest.mark.parametrize("text", ROWS)
def test_rows_are_the_same_in_every_form(text: str, golden: Unpacked) -> None:
    store = golden("broker")
    results = {form: run(text, store, "--output", form) for form in ("table", "json", "ndjson", "csv")}
    rows = json.loads(results["json"].out)
    assert len(rows) == ROWS[text]
    [(code, err)] = {(result.code, result.err) for result in results.values()}
    no_match = not rows and ("--state" in text or "--group" in text)
    assert code == (1 if no_match else 0)
    if "--limit" in text:
        assert err == f"stopped after {text.split()[-1]} rows (--limit)\n"
    elif no_match:
        assert err.startswith("nothing matches --")
    else:
        nobody = "none of 3 groups is behind: no messages to consume, and none in flight\n"
        answer = {
            "group lag STORE --lagging": nobody,
            "topic unused STORE": "no topic is unused\n",
            "group diff STORE --bak": "no offset differs\n",
        }
        assert err == answer.get(text, "" if rows else "there is nothing to list\n")
    assert [json.loads(line) for line in results["ndjson"].out.splitlines()] == rows
    assert len(results["table"].out.splitlines()) == len(rows) + 1
    table = list(csv.DictReader(io.StringIO(results["csv"].out, newline="")))
    if rows:
        assert list(table[0]) == list(rows[0])
    assert table == [{name: as_csv(value) for name, value in row.items()} for row in rows]


@pytest.mark.parametrize("line", OBJECTS)
def test_objects(line: str, golden: Unpacked) -> None:
    store = golden("broker")
    made = json.loads(run(line, store, "--output", "json").out)
    assert json.loads(run(line, store, "--output", "ndjson").out) == made
    rows = list(csv.DictReader(io.StringIO(run(line, store, "--output", "csv").out, newline="")))
    assert len(rows) == len(made[OBJECTS[line]]) > 0
    first = made[OBJECTS[line]][0]
    assert list(rows[0]) == [name for name in first if name != "isoTime" and f"{name}stamp" not in first]
    table = run(line, store)
    assert table.code == 0
    assert len(table.out.splitlines()) > len(rows)


def test_times_have_a_twin_for_people(golden: Unpacked) -> None:
    store = golden("broker")
    info = json.loads(run("info STORE -o json", store).out)
    assert (info["firstStoreTimestamp"], info["firstStoreTime"]) == (1795206884370, "2026-11-20 20:34:44.370Z")
    point = json.loads(run("checkpoint STORE -o json --tz +08:00", store).out)
    assert point["physicMsgTime"] == "2026-11-21 04:35:27.106+08:00"
    event = json.loads(run(f"trace STORE {DEAD} -o json", store).out)["events"][0]
    assert event["isoTime"].startswith("2026-11-20 20:34:4")
    assert not any(name.endswith("Time") for name in json.loads(run("retry list STORE -o json", store).out)[0])


def test_keys_are_a_list_wherever_a_message_is_told(golden: Unpacked) -> None:
    store = golden("broker")
    seen = 0
    for line in ROWS:
        for row in json.loads(run(line, store, "-o", "json").out):
            seen += "keys" in row
            assert isinstance(row.get("keys", []), list), line
            assert row.get("lag") == row.get("diff"), line
    assert seen > 50


def test_what_people_see_of_a_trace(golden: Unpacked) -> None:
    out = run(f"trace STORE {DEAD}", golden("broker")).out
    assert re.search(r"^state +dead-letter", out, re.M)
    assert re.search(r"stored +Orders/1 offset 0$", out, re.M)
    assert re.search(r"retry +%RETRY%lab-consumer.* delivery 3$", out, re.M)
    assert re.search(r"^lab-consumer +Orders +1 +0 +106 +True +given back$", out, re.M)
    assert (
        "rolled-back after 1 check"
        in run("trace STORE FD0000000000000000000000000000020FB630946E0966434BE901F3", golden("broker")).out
    )


def test_exit_codes(golden: Unpacked, golden_copy: Unpacked, tmp_path: Path) -> None:
    store = golden("broker")
    for arguments in ("trace STORE nothing", "transaction show STORE nothing", "topic show STORE nothing"):
        result = run(arguments, store)
        assert (result.code, result.out) == (1, "")
        assert "nothing" in result.err
    for arguments in ("group reset STORE nobody --to-latest --dry-run", "group clone STORE nobody new --dry-run"):
        assert run(arguments, store).code == 1
    assert run("group reset STORE lab-consumer --to-earliest --dry-run", store).code == 1
    assert run("group diff STORE STORE", store).code == 0
    other = golden_copy("broker")
    assert run("group reset STORE lab-orderly --to-earliest --yes", other).code == 0
    differs = run(f"group diff STORE {other} -o ndjson", store)
    assert differs.code == 1
    assert [json.loads(line)["change"] for line in differs.out.splitlines()] == [-10, -10, -10]
    assert run(f"group diff STORE {other}/config/consumerOffset.json", store).code == 1
    assert run("group diff STORE --bak", other).code == 1
    shutil.rmtree(other / "consumequeue" / "Orders")
    assert run("group lag STORE", other).code == 1  # ahead
    assert run("topic unused STORE", other).code == 1
    assert run("rebalance plan STORE Orders --consumer c1 --strategy MACHINE_ROOM --room r1", store).code == 1
    assert run("rebalance plan STORE nothing --consumer c1", store).code == 1


@pytest.mark.parametrize(
    "line",
    [
        "group reset STORE g",
        "group reset STORE g --to-latest --to-earliest",
        "group reset STORE g --to-time never",
        "group reset STORE g --from-csv x.csv --to-latest",
        "group reset STORE g --to-latest --from-csv x.csv",
        "group clone STORE lab-consumer lab-consumer --dry-run",
        "group clone STORE lab-consumer a/b --dry-run",
        "group diff STORE",
        "group diff STORE STORE --bak",
        "delay list STORE --at soon",
        "rebalance plan STORE Orders",
        "rebalance plan STORE Orders --consumer c1 --broker a=x",
        "rebalance plan STORE Orders --consumer c1 --broker a=999999",
        "rebalance plan STORE Orders --consumer c1 --strategy MACHINE_ROOM_NEARBY",
        "rebalance plan STORE Orders --consumer c1 --strategy MACHINE_ROOM_NEARBY --inner MACHINE_ROOM --room r=*",
    ],
)
def test_usage(line: str, golden: Unpacked) -> None:
    result = run(line, golden("broker"))
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith("error: ")
    assert result.err.count("\n") == 1


@pytest.mark.parametrize("line", ["group reset STORE lab-consumer --to-earliest", "group clone STORE lab-consumer new"])
def test_writing_needs_a_yes(line: str, golden: Unpacked) -> None:
    result = run(line, golden("broker"))
    assert result.code == 4
    assert "--yes" in result.err


def test_plan_edit_apply_undo(golden_copy: Unpacked, tmp_path: Path) -> None:
    store, plan = golden_copy("broker"), tmp_path / "plan.csv"
    before = fingerprint(store)
    made = run("group reset STORE lab-consumer --topic Orders --to-time 2026-11-20T20:34:45Z --dry-run -o csv", store)
    assert made.code == 1
    assert fingerprint(store) == before
    plan.write_text(made.out.replace(",14,", ",20,"))
    result = run(f"group reset STORE lab-consumer --from-csv {plan} --yes -o json", store)
    assert result.code == 0
    answer = json.loads(result.out)
    assert answer["applied"]
    assert sorted(move["newOffset"] for move in answer["moves"]) == [15, 15, 15, 20]
    lag = run("group lag STORE --group lab-consumer --topic Orders -o ndjson", store)
    assert sorted(json.loads(line)["diff"] for line in lag.out.splitlines()) == [85, 89, 90, 91]
    assert run(f"group reset STORE lab-consumer --from-csv {plan} --yes", store).code == 4  # it has moved
    assert run("undo STORE --yes", store).code == 0
    assert {k: v[1] for k, v in fingerprint(store).items()} == {k: v[1] for k, v in before.items()}


def test_offsets_go_out_and_in_again(golden: Unpacked, golden_copy: Unpacked, tmp_path: Path) -> None:
    store, file = golden_copy("broker"), tmp_path / "offsets.csv"
    file.write_text(run("group offsets STORE --group lab-consumer -o csv", golden("broker")).out)
    assert run("group reset STORE lab-consumer --to-earliest --yes", store).code == 0
    assert run(f"group diff STORE {file} --group lab-consumer", store).code == 1
    assert run(f"group reset STORE lab-consumer --from-csv {file} --yes", store).code == 0
    assert run("group diff STORE", store, golden("broker")).code == 0


def test_a_broadcasting_client(golden_copy: Unpacked, tmp_path: Path) -> None:
    store = golden_copy("broker")
    file = tmp_path / "client" / "bc" / "offsets.json"
    file.parent.mkdir(parents=True)
    file.write_text('{"offsetTable":{{"brokerName":"lab-a","queueId":0,"topic":"Orders"}:3}}')
    lag = run(f"group lag STORE --broadcast {file} -o ndjson", store)
    assert [json.loads(line)["diff"] for line in lag.out.splitlines()] == [102, 106, 104, 105]
    assert run(f"group reset STORE bc --broadcast {file} --queue 0 --to-latest --yes", store).code == 0
    offsets = run(f"group offsets STORE --broadcast {file} -o csv", store)
    assert offsets.out == "group,topic,queueId,consumerOffset\nbc,Orders,0,105\n"
    file.write_text("{}}")
    result = run(f"group lag STORE --broadcast {file}", store)
    assert result.code == 5
    assert str(file) in result.err


def test_rooms(golden: Unpacked) -> None:
    text = "rebalance plan STORE Orders --consumer x-1 --consumer y-1 --strategy MACHINE_ROOM_NEARBY --broker x-a "
    text += "--broker y-a=2 --broker z-a=2 --room x --room y=y-* --room z -o ndjson"
    rows = [json.loads(line) for line in run(text, golden("broker")).out.splitlines()]
    assert [(row["brokerName"], row["queueId"], row["consumer"]) for row in rows] == [
        *[("x-a", n, "x-1") for n in range(4)],
        *[("y-a", n, "y-1") for n in range(2)],
        *[("z-a", 0, "x-1"), ("z-a", 1, "y-1")],
    ]


def test_a_broken_config_is_told_and_its_bak_used(golden_copy: Unpacked) -> None:
    store = golden_copy("broker")
    (store / "config" / "consumerOffset.json").write_bytes(b'{"offsetTable":{')
    for arguments in (
        "group lag STORE",
        "group list STORE",
        "topic list STORE",
        "retry list STORE",
        f"trace STORE {DEAD}",
    ):
        result = run(arguments, store)
        assert result.code == 1
        assert "warning: " in result.err
        assert "as a broker does" in result.err
        assert result.out
    (store / "config" / "consumerOffset.json.bak").write_bytes(b"")
    assert run("group lag STORE", store).code == 5
    assert run("transaction list STORE", store).code == 1  # it does without


def test_a_custom_table_of_levels(golden: Unpacked, tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text("messageDelayLevel=1s 5s 10s 30s\n")
    result = run(f"delay list STORE {' '.join(AT)} --broker-conf {conf} -o ndjson", golden("broker"))
    last = json.loads(result.out.splitlines()[-1])
    assert (last["level"], last["delay"], last["pending"], last["due"]) == (18, None, 6, 0)


def test_reading_changes_nothing(golden_copy: Unpacked) -> None:
    store = golden_copy("broker")
    (store / "lock").unlink()
    before = fingerprint(store)
    for line in EVERY:
        run(line, store)
    assert fingerprint(store) == before
    assert [path.name for path in store.parent.iterdir()] == ["store"]


CONTROL = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029\u202e]")


@pytest.mark.parametrize("form", ["table", "json", "csv"])
def test_hostile_names(form: str, tmp_path: Path) -> None:
    store = hostile.make(tmp_path)
    shutil.copy(store / "config" / "consumerOffset.json", store / "config" / "consumerOffset.json.bak")
    lines = [*EVERY, *(f"topic show STORE {topic.decode('utf-8', 'surrogateescape')}" for topic in hostile.TOPICS[1:3])]
    for line in lines:
        result = run(line, store, "--output", form)
        assert result.code in (0, 1), (line, result.err)
        assert "Traceback" not in result.err
        if form == "table":
            assert not CONTROL.search(result.out), line


def test_hostile_half_retry_and_delay_messages(tmp_path: Path) -> None:
    builder = Builder()
    for text in ("\x1b[31m", "🙂" * 50, "a\x9bb", "9" * 400, "-1", "%s%n"):
        names = dict.fromkeys(
            ("REAL_TOPIC", "REAL_QID", "PGROUP", "UNIQ_KEY", "KEYS", "RETRY_TOPIC", "ORIGIN_MESSAGE_ID", "DELAY"), text
        )
        for topic in ("RMQ_SYS_TRANS_HALF_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC", "%RETRY%g", "%DLQ%g"):
            builder.put(topic, properties={**names, "TRANSACTION_CHECK_TIMES": text})
        builder.put("RMQ_SYS_TRANS_OP_HALF_TOPIC", body=text.encode(), properties={"TAGS": "d"})
        builder.put("SCHEDULE_TOPIC_XXXX", 0, properties={k: v for k, v in names.items() if k != "DELAY"})
        builder.put("SCHEDULE_TOPIC_XXXX", 0, properties={"REAL_TOPIC": f"%RETRY%{text}"}, code=-(2**63))
        builder.put("SCHEDULE_TOPIC_XXXX", 0, properties={"REAL_TOPIC": f"%RETRY%{text}"}, code=2**63 - 1)
    offsets = '{"offsetTable":{"%RETRY%g@g":{0:2}}}'
    store = builder.write(tmp_path, {"consumerOffset.json": offsets, "consumerOffset.json.bak": offsets})
    for line in EVERY:
        for form in ("table", "json", "csv"):
            result = run(line, store, "--output", form)
            assert result.code in (0, 1), (line, result.err)
            assert form != "table" or not CONTROL.search(result.out), line


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory for one damaged store after another."""
    return tmp_path_factory.mktemp("fuzz-services")


@by_turns(3)
@given(steps=DAMAGE)
@settings(
    max_examples=EXAMPLES,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
def test_any_damage(golden: Unpacked, workshop: Path, steps: list[Any]) -> None:
    signal.alarm(MOST_SECONDS * 6)  # of this store; each command has its own limit
    shutil.rmtree(workshop)
    store = workshop / "store"
    shutil.copytree(golden("broker"), store)
    for path in store.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    damage(store, steps)
    before = fingerprint(store)
    for line in EVERY:
        checked([str(store) if word == "STORE" else word for word in line.split()])
    assert fingerprint(store) == before
    checked(["group", "reset", str(store), "lab-consumer", "--topic", "Orders", "--shift", "-3", "--clamp", "--yes"])
    checked(["group", "clone", str(store), "lab-consumer", "new", "--clamp", "--yes"])
