"""Compare ``mqadmin`` and our commands field by field, for real brokers and ours.

A normal run uses one broker, depending on the date; ``RMQTOOL_TESTS=all`` uses all.
"""

import json
import re
import time
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from tests.amounts import ALL
from tests.cli.running import rmqtool
from tests.interop import broker as brokers
from tests.interop.broker import Broker
from tests.interop.engine import NEWEST
from tests.interop.mqadmin import CONFIG, prepare
from tests.interop.serving import CLUSTER, NAME, Serving

pytestmark = pytest.mark.interop
CASES = [("5.3.3", "real"), ("4.9.8", "ours"), ("4.9.8", "real"), ("5.3.3", "ours"), (NEWEST, "real")]
if not ALL:
    CASES = [CASES[datetime.now(UTC).toordinal() % len(CASES)]]
ALIKE = 100  # messages with the same key: more than a broker gives in one answer


@dataclass
class Both:
    """A cluster queried by both.

    Attributes:
        judge: its ``mqadmin``.
        filled: values for command lines.
    """

    judge: Broker
    target: str
    filled: dict[str, str]

    def admin(self, line: str) -> str:
        """The output of ``mqadmin``."""
        args = [word.format_map(self.filled) for word in line.split()]
        answer: str = self.judge.ask("admin", arguments=args, seconds=20)["said"]
        return answer

    def ours(self, line: str, code: int = 0) -> Any:
        """The rows of our command."""
        args = [self.target if word == "TARGET" else word.format_map(self.filled) for word in line.split()]
        done = rmqtool(*args, "-o", "json")
        assert done.code == code, done.err
        return json.loads(done.out)


@contextmanager
def booted(
    version: str, kind: str, folder: Path, *, more: Mapping[str, str] = MappingProxyType({})
) -> Iterator[tuple[Broker, str, dict[str, str]]]:
    """A real broker or ours with topics and clients, its cluster's name for commands, and the values for them.

    Args:
        more: settings of a real one beside :data:`CONFIG`.
    """
    if reason := brokers.available(version):
        pytest.skip(reason)
    with ExitStack() as stack:
        judge = stack.enter_context(Broker(version))
        if kind == "real":
            (folder / "store").mkdir()
            judge.boot(folder / "store", {**CONFIG, **more})
            addresses = judge.ask("addresses")
        else:
            conf = folder / "broker.conf"
            conf.write_text("".join(f"{name}={value}\n" for name, value in CONFIG.items()))
            options = ("--create", "--engine", judge.engine, "--broker-conf", str(conf))
            serving = stack.enter_context(Serving(folder / "store", *options))
            judge.connect(serving.namesrv, serving.broker)
            addresses = {"broker": serving.broker, "namesrv": serving.namesrv}
        stack.callback(judge.stop)
        filled = {**addresses, **prepare(judge, folder / "files")}
        yield judge, f"rocketmq://{addresses['namesrv']}/{CLUSTER}", filled


@pytest.fixture(scope="module", params=CASES, ids=lambda case: f"{case[1]}-{case[0]}")
def both(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    version, kind = request.param
    with booted(version, kind, tmp_path_factory.mktemp("live")) as (judge, target, filled):
        for number in range(ALIKE):
            if number == ALIKE // 2:
                time.sleep(1.1)  # an index knows whole seconds
            judge.ask("send", topic="Orders", keys="alike", queueId=number % 4, tag="a")
        result = Both(judge, target, filled)
        for _ in range(60):  # its clients are at work
            if all(
                row["consumerOffset"] == 30
                for row in result.ours("group offsets TARGET --group readers --topic Orders")
            ):
                break
            time.sleep(0.5)
        yield result


def columns(text: str, *, begin: str = "#") -> list[dict[str, str]]:
    """The table in an output: rows by column title, with columns separated by two spaces."""
    lines = text.splitlines()
    first = next(n for n, line in enumerate(lines) if line.startswith(begin))
    titles = [title.strip() for title in re.split(r"  +|(?<=\S) (?=#)", lines[first]) if title]
    rows = []
    for line in lines[first + 1 :]:
        if not line.strip():
            break
        rows.append(dict(zip(titles, re.split(r"  +", line.strip()), strict=False)))
    return rows


def millis(text: str) -> int:
    """Parse a time of ``mqadmin``, whose JVM runs in UTC; a comma or nothing before the milliseconds."""
    result = re.sub(r",(\d{3})$", r".\1", text)
    return round(datetime.fromisoformat(result).replace(tzinfo=UTC).timestamp() * 1000)


def fields(text: str, separator: str) -> dict[str, str]:
    """Parse lines of name and value."""
    pairs = (line.partition(separator) for line in text.splitlines())
    return {name.strip(): value.strip() for name, sign, value in pairs if sign}


def test_cluster_list(both: Both) -> None:
    (theirs,) = columns(both.admin("clusterList"))
    (ours,) = both.ours("cluster list TARGET")
    assert theirs["#Cluster Name"] == ours["cluster"] == CLUSTER
    assert theirs["#Broker Name"] == ours["brokerName"] == NAME
    assert int(theirs["#BID"]) == ours["brokerId"]
    assert theirs["#Addr"] == ours["address"] == both.filled["broker"]
    assert theirs["#Version"] == ours["version"]
    assert int(theirs["#PCWait(ms)"].split()[0]) == ours["pageCacheLockTimeMills"]
    if "#ACTIVATED" in theirs:
        assert theirs["#ACTIVATED"] == str(ours["active"]).lower()
    status = fields(both.admin("brokerStatus -b {broker}"), ":")
    for name in ("commitLogMinOffset", "commitLogMaxOffset", "bootTimestamp", "sendThreadPoolQueueSize"):
        assert int(status[name]) == ours[name], name
    assert float(status["commitLogDiskRatio"]) == pytest.approx(ours["commitLogDiskRatio"], abs=0.02)
    assert int(status["earliestMessageTimeStamp"]) == (ours["earliestMessageTimestamp"] or -1)


def test_topic_list(both: Both) -> None:
    theirs = set(both.admin("topicList").split())
    ours = {row["topic"]: row for row in both.ours("topic list TARGET --system")}
    beside = {CLUSTER} if both.target and CLUSTER not in ours else set()  # name servers alone know it in 4.9
    assert theirs - beside <= ours.keys()
    assert all(name not in theirs or ours[name]["configured"] for name in ours)
    assert ours["Orders"]["messages"] == 20 + ALIKE
    assert ours["Orders"]["groups"] == 2


def test_topic_show(both: Both) -> None:
    theirs = columns(both.admin("topicStatus -t Orders"))
    ours = both.ours("topic show TARGET Orders")["queueTable"]
    assert len(theirs) == len(ours) == 4
    for their, our in zip(theirs, ours, strict=True):
        assert their["#Broker Name"] == our["brokerName"]
        assert int(their["#QID"]) == our["queueId"]
        assert int(their["#Min Offset"]) == our["minOffset"]
        assert int(their["#Max Offset"]) == our["maxOffset"]
        assert millis(their["#Last Updated"]) == our["lastStoreTimestamp"]
    assert both.admin("topicStatus -t NoSuch").count("NoSuch")
    assert rmqtool("topic", "show", both.target, "NoSuch").code == 1


def test_group_lag(both: Both) -> None:
    theirs = columns(both.admin("consumerProgress -g readers"))
    ours = [row for row in both.ours("group lag TARGET --group readers") if not row["topic"].startswith("%")]
    theirs = [row for row in theirs if not row["#Topic"].startswith("%")]
    assert len(theirs) == len(ours) == 4
    for their, our in zip(theirs, ours, strict=True):
        assert (their["#Topic"], their["#Broker Name"], int(their["#QID"])) == (
            our["topic"], our["brokerName"], our["queueId"],
        )  # fmt: skip
        assert int(their["#Broker Offset"]) == our["brokerOffset"]
        assert int(their["#Consumer Offset"]) == our["consumerOffset"]
        assert int(their["#Diff"]) == our["diff"] == our["lag"]
        assert millis(their["#LastTime"]) == our["lastTimestamp"] // 1000 * 1000
        assert our["inFlight"] is None
    # mqadmin needs the group's retry topic, which this one does not have
    idle = both.ours("group lag TARGET --group idle")
    assert [row["consumerOffset"] for row in idle] == [0, 1, 2, 3]
    assert sum(row["diff"] for row in idle) == both.ours("group lag TARGET --group idle --by group")[0]["diff"]


def test_group_list(both: Both) -> None:
    ours = {row["group"]: row for row in both.ours("group list TARGET")}
    for group in ("readers", "idle"):
        text = fields(both.admin(f"getConsumerConfig -g {group}"), "=")
        assert text["groupName"] == group
        assert text["consumeEnable"] == str(ours[group]["consumeEnable"]).lower()
        assert int(text["retryMaxTimes"]) == ours[group]["retryMaxTimes"]
    configured = both.ours("config TARGET subscriptionGroup.json")["subscriptionGroupTable"]
    assert configured.keys() == {group for group, row in ours.items() if row["configured"]}
    text = columns(both.admin("consumerProgress"))
    assert {row["#Group"]: int(row["#Diff Total"]) for row in text if row["#Group"] == "readers"} == {
        "readers": ours["readers"]["diff"]
    }


def test_client_list(both: Both) -> None:
    output = both.admin("consumerConnection -g readers")
    (theirs,) = columns(output)
    (ours,) = both.ours("client list TARGET --group readers")
    assert theirs["#ClientId"] == ours["clientId"]
    assert theirs["#ClientAddr"] == ours["clientAddr"]
    assert theirs["#Language"] == ours["language"]
    kinds = fields(output, ":")
    assert kinds["ConsumeType"] == ours["consumeType"]
    assert kinds["MessageModel"] == ours["messageModel"]
    assert kinds["ConsumeFromWhere"] == ours["consumeFromWhere"]
    wants = {row["#Topic"]: row["#SubExpression"] for row in columns(output, begin="#Topic")}
    assert wants == ours["subscriptions"]


def test_producers(both: Both) -> None:
    theirs = {
        (group, client)
        for line in both.admin("producer -b {broker}").splitlines()
        if (match := re.search(r"producer group \((.*?)\) instance : (.*)", line)) is not None
        for group, client in [(match[1], match[2])]
    }
    ours = both.ours("client producers TARGET")
    assert {group for group, _text in theirs} == {row["group"] for row in ours}
    for row in ours:
        (text,) = [text for group, text in theirs if group == row["group"] and row["clientId"] in text]
        assert row["clientAddr"] in text


def test_who_holds_which_queue(both: Both) -> None:
    status = both.admin("consumerStatus -g readers -i {client}")
    # the table of queues of a client's running info: topic, broker, queue id, and what it holds
    theirs = {
        (match[1], match[2], int(match[3]))
        for line in status.splitlines()
        if (match := re.match(r"(\S+)\s+(\S+)\s+(\d+)\s+(-?\d+)", line)) is not None and match[2] == NAME
    }
    rows = both.ours("client show TARGET readers")
    ours = {(row["topic"], row["brokerName"], row["queueId"]) for row in rows if row["clientId"] is not None}
    assert theirs == ours, status
    assert {row["clientId"] for row in rows} == {both.filled["client"]}
    assert {row["state"] for row in rows} == {"ok"}
    (stack,) = both.ours("client stack TARGET readers")
    assert "TID:" in stack["stack"]
    assert "ConsumeMessageThread" in stack["stack"]


def test_one_message_for_one_client(both: Both) -> None:
    both.ours("message consume-directly TARGET {id} readers --dry-run", 1)
    (done,) = both.ours("message consume-directly TARGET {id} readers --yes")
    assert (done["consumeResult"], done["clientId"]) == ("CR_SUCCESS", both.filled["client"])
    (by_unique,) = both.ours("message consume-directly TARGET {unique} readers --yes")
    assert by_unique["msgId"] == both.filled["id"]


def test_slaves(both: Both) -> None:
    if both.judge.engine == "4.9":
        done = rmqtool("cluster", "replicas", both.target)
        assert (done.code, "do not report their slaves" in done.err) == (1, True)
        return
    output = both.admin("haStatus -b {broker}")
    (row,) = both.ours("cluster replicas TARGET")
    assert row["slaveAddress"] is None
    assert str(row["masterMaxOffset"]) in output


def test_settings_beside_the_defaults(both: Both) -> None:
    rows = {row["name"]: row for row in both.ours("broker-config diff TARGET --defaults", 1)}
    theirs = fields(both.admin("getBrokerConfig -b {broker}"), "=")
    assert rows
    for name, row in rows.items():
        assert theirs[name] == (row["value"] or "").strip() != row["other"], name
    assert both.ours("broker-config diff TARGET") == []


def test_settings_of_name_servers(both: Both) -> None:
    theirs = fields(both.admin("getNamesrvConfig"), "=")
    ours = {row["name"]: row["value"] for row in both.ours("namesrv-config show TARGET")}
    assert len(ours) > 5
    for name, value in ours.items():
        assert theirs[name] == value.strip(), name


def test_round_trips(both: Both) -> None:
    before = both.ours("topic list TARGET Orders")[0]["messages"]
    (row,) = both.ours("send-rtt TARGET Orders --messages 3 --yes")
    assert (row["brokerName"], row["sent"], row["failed"]) == (NAME, 3, 0)
    assert both.ours("topic list TARGET Orders")[0]["messages"] == before + 3


@pytest.mark.parametrize(
    ("admin", "ours"),
    [
        ("queryMsgById -t Orders -i {id}", "query-id TARGET {id}"),
        ("queryMsgByUniqueKey -t Orders -i {unique}", "query-id TARGET {unique} --topic Orders"),
        (f"queryMsgByOffset -t Orders -b {NAME} -i 1 -o 2", "query-offset TARGET Orders 1 2"),
    ],
)
def test_a_message(admin: str, ours: str, both: Both) -> None:
    if both.judge.engine == "4.9":
        admin = admin.replace("queryMsgById -t Orders", "queryMsgById")
    output = fields(both.admin(admin), ":")
    (our,) = both.ours(ours)
    assert output.get("OffsetID", our["offsetMsgId"]) == our["offsetMsgId"]  # 5.x alone says it, and not each command
    assert output["Topic"] == our["topic"]
    assert output["Tags"] == f"[{our['tags']}]"
    assert output["Keys"] == f"[{' '.join(our['keys'])}]"
    assert int(output["Queue ID"]) == our["queueId"]
    assert int(output["Queue Offset"]) == our["queueOffset"]
    assert int(output["CommitLog Offset"]) == our["physicalOffset"]
    assert int(output["Reconsume Times"]) == our["reconsumeTimes"]
    assert millis(output["Born Timestamp"]) == our["bornTimestamp"]
    assert millis(output["Store Timestamp"]) == our["storeTimestamp"]
    assert output["Born Host"] == our["bornHost"]
    assert output["Store Host"] == our["storeHost"]
    assert int(output["System Flag"]) == our["sysFlag"]
    properties = dict(part.split("=", 1) for part in output["Properties"].strip("{}").split(", "))
    kept = {name: value for name, value in properties.items() if name not in ("MIN_OFFSET", "MAX_OFFSET")}
    assert kept == our["properties"]


def test_keys(both: Both) -> None:
    theirs = columns(both.admin("queryMsgByKey -t Orders -k key3"))
    ours = both.ours("query-key TARGET Orders key3")
    assert [(row["#Message ID"], int(row["#QID"]), int(row["#Offset"].split()[0])) for row in theirs] == [
        (row["msgId"], row["queueId"], row["queueOffset"]) for row in ours
    ]
    alike = columns(both.admin("queryMsgByKey -t Orders -k alike"))
    ours = both.ours("query-key TARGET Orders alike")
    assert len(alike) < ALIKE, "mqadmin has a limit, and says nothing of it"
    assert len({row["offsetMsgId"] for row in ours}) == ALIKE
    assert {row["#Message ID"] for row in alike} < {row["msgId"] for row in ours}


def test_settings(both: Both) -> None:
    theirs = fields(both.admin("getBrokerConfig -b {broker}"), "=")
    ours = {row["name"]: row["value"] for row in both.ours("broker-config show TARGET {broker}")}
    theirs = {name: value for name, value in theirs.items() if name and not name.startswith("=")}
    assert theirs.keys() - {""} <= ours.keys()
    assert {name: value for name, value in theirs.items() if ours[name].strip() != value} == {}


def test_offsets_as_they_are_stored(both: Both) -> None:
    stored = both.ours("group offsets TARGET --group idle")
    for row in stored:
        answer = both.judge.ask(
            "request",
            code=14,
            fields={"consumerGroup": "idle", "topic": row["topic"], "queueId": str(row["queueId"])},
            base64=b64encode(b"").decode(),
        )
        assert int(answer["fields"]["offset"]) == row["consumerOffset"]
    assert len(stored) == 4
    beside = both.ours("offsets TARGET --group idle")
    assert [row["consumerOffset"] for row in beside] == [row["consumerOffset"] for row in stored]


def test_looking_changes_nothing(both: Both, tmp_path: Path) -> None:
    before = both.ours("cluster list TARGET")[0]["commitLogMaxOffset"], both.ours("group offsets TARGET --group idle")
    both.ours("query-offset TARGET Orders 1 9999 --status", 1)
    both.ours("query-time TARGET Orders 1 now")
    both.ours("info TARGET")
    both.ours("config TARGET topics.json")
    after = both.ours("cluster list TARGET")[0]["commitLogMaxOffset"], both.ours("group offsets TARGET --group idle")
    assert after == before


# -- what consumers gave back, and messages that wait -----------------------------------------------------------------


def give_back(both: Both, row: dict[str, Any], group: str, level: int) -> None:
    """As a consumer does that fails; level -1 is the last time."""
    answer = both.judge.ask(
        "request", code=36, base64=b64encode(b"").decode(),
        fields={
            "offset": str(row["physicalOffset"]), "group": group, "delayLevel": str(level), "maxReconsumeTimes": "16",
            "originMsgId": row["offsetMsgId"], "originTopic": row["topic"], "unitMode": "false",
        },
    )  # fmt: skip
    assert answer["code"] == 0, answer


def wait_for(look: Callable[[], bool], seconds: float = 30) -> None:
    for _ in range(int(seconds / 0.5)):
        if look():
            return
        time.sleep(0.5)
    assert look()


def test_dead_letters(both: Both) -> None:
    """The broker makes one; ours lists it, gives it back once, and the trace has all of it."""
    (row,) = both.ours("query-offset TARGET Orders 1 2 --max-msgs 1")
    give_back(both, row, "idle", -1)
    wait_for(lambda: rmqtool("dlq", "list", both.target, "--group", "idle").code == 0)
    (letter,) = both.ours("dlq list TARGET --group idle")
    assert (letter["state"], letter["originTopic"], letter["msgId"]) == ("dead", "Orders", row["msgId"])
    (whole,) = [
        json.loads(line)
        for line in rmqtool("dlq", "export", both.target, "--group", "idle", "-o", "ndjson").out.splitlines()
    ]
    assert whole["body"] == row["body"]
    done = rmqtool("dlq", "requeue", both.target, "idle", "--yes", "-o", "ndjson")
    assert done.code == 0, done.err
    sent = json.loads(done.out)
    assert (sent["state"], sent["targetTopic"]) == ("done", "%RETRY%idle")
    for args in (("--yes",), ("--yes", "--to", "origin")):
        again = rmqtool("dlq", "requeue", both.target, "idle", *args, "-o", "ndjson")
        assert (again.code, json.loads(again.out)["state"]) == (0, "before"), again.err
    (waiting,) = both.ours("retry list TARGET --group idle")
    assert (waiting["state"], waiting["msgId"], waiting["reconsumeTimes"]) == ("waiting", row["msgId"], 0)
    text = fields(both.admin(f"queryMsgByOffset -t %RETRY%idle -b {NAME} -i 0 -o {sent['targetQueueOffset']}"), ":")
    assert int(text["Reconsume Times"]) == 0
    assert text["Topic"] == "%RETRY%idle"
    (trace,) = [both.ours(f"trace TARGET {row['msgId']}")]
    assert [event["event"] for event in trace["events"]] == ["stored", "dead-letter", "retry"]
    assert {event["brokerName"] for event in trace["events"]} == {NAME}


def test_messages_that_wait(both: Both) -> None:
    (row,) = both.ours("query-offset TARGET Orders 1 1 --max-msgs 1")
    give_back(both, row, "idle", 5)  # a minute
    wait_for(lambda: rmqtool("retry", "list", both.target, "--group", "idle", "--state", "scheduled").code == 0)
    (retry,) = both.ours("retry list TARGET --group idle --state scheduled")
    assert retry["msgId"] == row["msgId"]
    assert abs(retry["deliverTimestamp"] - retry["storeTimestamp"]) == 60_000
    (level,) = [entry for entry in both.ours("delay list TARGET") if entry["level"] == 5]
    assert (level["pending"], level["due"]) == (1, 0)
    assert level["firstDeliverTimestamp"] == retry["deliverTimestamp"]
    (message,) = both.ours("delay due TARGET --all --level 5")
    assert (message["topic"], message["deliverTimestamp"]) == ("%RETRY%idle", retry["deliverTimestamp"])


def test_transactions(both: Both) -> None:
    done = rmqtool("transaction", "list", both.target, "-o", "ndjson")
    assert (done.code, done.out) == (0, ""), "there are none"
    assert rmqtool("transaction", "show", both.target, "none").code == 1
    assert rmqtool("topic", "create", both.target, "Halves", "--yes").code == 0
    ends = {"commit": "committed", "rollback": "rolled-back", "unknown": "pending"}
    for answer in ends:
        for number in range(3):
            key = f"{answer}-{number}"
            both.judge.ask("sendHalf", group="halves", topic="Halves", keys=key, answer=answer, checked="unknown")

    def states() -> dict[str, str]:
        return {row["keys"][0]: row["state"] for row in both.ours("transaction list TARGET")}

    expected = {f"{answer}-{number}": state for answer, state in ends.items() for number in range(3)}
    wait_for(lambda: states() == expected)  # producers do not wait for ends


def test_who_gets_which_queue(both: Both) -> None:
    (client,) = both.ours("client list TARGET --group readers")
    plan = both.ours("rebalance plan TARGET Orders --clients-of readers")
    assert [(row["brokerName"], row["queueId"]) for row in plan] == [(NAME, number) for number in range(4)]
    assert {row["consumer"] for row in plan} == {client["clientId"]}
    plan = both.ours(f"rebalance plan TARGET Orders --clients-of readers -c {client['clientId']} -c zzz")
    assert [row["moves"] for row in plan] == [False, False, True, True]


def test_rounds(both: Both, tmp_path: Path) -> None:
    page = tmp_path / "lag.prom"
    args = ("--watch", "500ms", "--rounds", "3", "--prometheus", page, "-o", "ndjson", "--topic", "Orders")
    done = rmqtool("group", "lag", both.target, "-g", "idle", *args)
    rows = [json.loads(line) for line in done.out.splitlines()]
    assert len(rows) == 12, done.err
    for row in rows:
        (message,) = both.ours(f"query-offset TARGET Orders {row['queueId']} {row['queueId']} --max-msgs 1")
        assert row["oldestTimestamp"] == message["storeTimestamp"]
    assert "rocketmq_consumer_lag_messages{" in page.read_text()


def test_doctor(both: Both) -> None:
    done = rmqtool("doctor", both.target, "-o", "json")
    assert done.code in (0, 1), done.err
    rows = json.loads(done.out)
    assert [row["group"] for row in rows if row["code"] == "group-offline"] == ["idle"]
    beside = {"group-offline", "dead-letters-grow", "disk-filling", "disk-full"}  # of the machine and of other tests
    assert [(row["severity"], row["code"], row["actual"]) for row in rows if row["code"] not in beside] == []


def test_what_is_declared(both: Both, tmp_path: Path) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text(rmqtool("config", both.target, "--yaml").out)
    assert "Orders:" in file.read_text()
    done = rmqtool("apply", both.target, file, "--dry-run")
    assert (done.code, "nothing to change" in done.err) == (0, True), done.err
