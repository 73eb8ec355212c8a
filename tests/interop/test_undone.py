"""After a change of a live cluster and its undo, the files of a real broker have what they had before.

Only with ``RMQTOOL_TESTS=all``.
"""

import json
import time
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from formats.fastjson.read import loads
from rmqtool.store.layout.rocksdb import Database
from tests.admin.test_changes import undo_kills
from tests.amounts import only_in_all
from tests.cli.running import rmqtool
from tests.interop import broker as brokers
from tests.interop.broker import Broker
from tests.interop.engine import NEWEST
from tests.interop.mqadmin import CONFIG
from tests.interop.serving import CLUSTER
from tests.interop.test_live_changes import ACCESS

pytestmark = [pytest.mark.interop, only_in_all]
RELEASES = ("4.9.8", "5.3.3", NEWEST)
FILES = ("topics.json", "subscriptionGroup.json", "consumerOffset.json")
PERSISTED = 3.0  # s: brokers write their offsets every flushConsumerOffsetInterval
TOPICS = "topicConfigTable"
HALF = "RMQ_SYS_TRANS_HALF_TOPIC"
# 4.9 adds the topic of half messages to its table at its first look for transactions, which is after a minute by itself
SETTINGS = {**CONFIG, "flushConsumerOffsetInterval": "1000", "transactionCheckInterval": "1000"}

GROUP = {
    "groupName": "odd", "retryQueueNums": 2, "retryMaxTimes": 5, "consumeBroadcastEnable": False,
    "whichBrokerWhenConsumeSlowly": 3, "brokerId": 1, "notifyConsumerIdsChangedEnable": False,
}  # fmt: skip
NEWER = {
    "consumeMessageOrderly": True, "groupSysFlag": 1, "consumeTimeoutMinute": 9,
    "groupRetryPolicy": {"type": "EXPONENTIAL", "exponentialRetryPolicy": {"initial": 7, "max": 70, "multiplier": 3}},
    "subscriptionDataSet": [{"topic": "Ordered", "expressionType": "TAG", "expression": "a", "version": 4}],
}  # fmt: skip


def read(path: Path) -> bytes:
    """A file that its broker replaces: it is away for a moment."""
    while True:
        try:
            return path.read_bytes()
        except FileNotFoundError:
            time.sleep(0.1)


def access(store: Path) -> dict[tuple[str, bytes], bytes]:
    """The users and rules of a broker of 5.x, byte for byte, by database and key."""
    tables = {}
    for name in ("users", "acls"):
        (path,) = store.rglob(f"auth/{name}")
        database = Database(str(path))
        tables |= {(name, key): value for family in database.families for key, value in database.items(family)}
    return tables


def rules(tables: dict[tuple[str, bytes], bytes]) -> dict[tuple[str, bytes], list[Any]]:
    """The rules of each subject, in any order."""
    return {
        key: sorted((rule for policy in loads(value)["policies"] for rule in policy["entries"]), key=str)
        for key, value in tables.items()
        if key[0] == "acls"
    }


class Lab:
    """A real broker with settings of every kind."""

    def __init__(self, judge: Broker, store: Path) -> None:
        self.judge, self.config = judge, store / "config"
        self.target = f"rocketmq://{judge.namesrv}/{CLUSTER}"
        self.is_old = judge.engine == "4.9"

    def files(self) -> dict[str, Any]:
        """The tables of the broker, once it has written them."""
        time.sleep(PERSISTED)
        tables: dict[str, Any] = {name: loads(read(self.config / name)) for name in FILES}
        for table in tables.values():
            table.pop("dataVersion", None)
        return tables

    def make(self, code: int, fields: dict[str, str] | None = None, body: object = None) -> None:
        """Send a request of an administrator."""
        sent = {"base64": b64encode(json.dumps(body).encode()).decode()} if body is not None else {}
        assert self.judge.ask("request", code=code, fields=fields or {}, **sent)["code"] == 0

    def run(self, line: str, code: int = 0) -> str:
        """Run our command; returns its notes."""
        args = [self.target if word == "TARGET" else word for word in line.split()]
        done = rmqtool(*args, "--yes")
        assert done.code == code, (line, done.out, done.err)
        return done.err

    def check_files(self, before: dict[str, Any]) -> None:
        """They have what they had."""
        after = self.files()
        for name, tables in before.items():
            assert after[name].keys() == tables.keys()
            for table, then in tables.items():
                now = after[name][table]
                assert now == then, {key: (now.get(key), then.get(key)) for key in sorted({*now, *then}, key=str)}


@pytest.fixture(scope="module", params=RELEASES)
def lab(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    version = request.param
    if reason := brokers.available(version):
        pytest.skip(reason)
    store = tmp_path_factory.mktemp("undone") / "store"
    store.mkdir()
    with Broker(version) as judge:
        judge.boot(store, SETTINGS | ({} if version.startswith("4") else ACCESS | {"authConfigPath": f"{store}/auth"}))
        lab = Lab(judge, store)
        topic = {
            "topic": "Ordered", "defaultTopic": "TBW102", "readQueueNums": "3", "writeQueueNums": "2", "perm": "6",
            "topicFilterType": "SINGLE_TAG", "topicSysFlag": "1", "order": "true",
        }  # fmt: skip
        lab.make(17, topic | ({} if lab.is_old else {"attributes": "+message.type=FIFO"}))
        lab.make(17, topic | {"topic": "Plain%", "order": "false", "topicSysFlag": "0"})
        lab.make(200, None, GROUP | ({} if lab.is_old else NEWER))
        lab.make(200, None, {"groupName": "idle"})
        for number in range(8):
            judge.ask("send", topic="Ordered", keys=f"key{number}", queueId=number % 2, tag="a")
        for group, first in (("odd", 2), ("idle", 1)):
            for queue in range(2):
                judge.ask("setOffset", group=group, topic="Ordered", queueId=queue, offset=queue + first)
        if not lab.is_old:
            for line in (
                "createUser -b {0} -u reader -p secretive",
                "createUser -b {0} -u bare -p secretive",
                "createAcl -b {0} -s User:reader -r Topic:Ordered -a Sub -d Allow",
                "createAcl -b {0} -s User:reader -r Group:odd,Topic:Plain* -a Sub,Get -i 10.0.0.1,10.0.1.0/24 -d Deny",
            ):  # fmt: skip
                judge.ask("admin", arguments=line.format(judge.ask("addresses")["broker"]).split(), seconds=20)
            assert len(access(store)) == 3
        while not (lab.config / "consumerOffset.json").exists() or HALF not in lab.files()["topics.json"][TOPICS]:
            time.sleep(0.5)
        yield lab
        judge.stop()


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


@pytest.mark.parametrize(
    "line",
    [
        "topic update TARGET Ordered --read-queues 5",
        "topic perm TARGET Ordered R",
        "topic create TARGET New --queues 2",
        "topic delete TARGET Plain%",
        "group update TARGET odd --max-retries 1",
        "group create TARGET new",
        "group delete TARGET odd",
        "group reset TARGET idle --to-latest",
        "group reset TARGET idle --to-offset 0 --topic Ordered --queue 1",
        "group clone TARGET odd idle",
        "broker-config set TARGET brokerPermission=4",
    ],
)
def test_files_are_as_before(line: str, lab: Lab) -> None:
    before = lab.files()
    lab.run(line)
    changed = lab.files()
    lab.run("undo TARGET")
    lab.check_files(before)
    if not line.startswith("broker-config"):
        assert changed != before, f"{line} changed nothing"


@pytest.mark.parametrize(
    "line",
    [
        "user create TARGET new --password-file PASSWORD",
        "user update TARGET reader --super",
        "user update TARGET reader --disable --password-file PASSWORD",
        "user delete TARGET reader",
        "acl set TARGET User:bare --resource Topic:Orders --action Sub",
        "acl set TARGET User:reader --resource Topic:* --action Pub --action Get",
        "acl set TARGET User:reader --resource Topic:Ordered --action Pub --deny",
        "acl delete TARGET User:reader --resource Topic:Ordered",
        "acl delete TARGET User:reader --resource Group:odd",
        "acl delete TARGET User:reader",
    ],
)
def test_users_and_rules_are_as_before_byte_for_byte(line: str, lab: Lab, tmp_path: Path) -> None:
    if lab.is_old:
        pytest.skip("4.9 has accounts in a file: test_plain_accounts.py")
    password = tmp_path / "password"
    password.write_text("another\n")
    before = access(lab.config.parent)
    lab.run(line.replace("PASSWORD", str(password)))
    assert access(lab.config.parent) != before
    said = lab.run("undo TARGET")
    is_last = "--resource" in line and "delete" in line  # a broker appends a rule that comes back
    assert is_last == ("at the end of the subject's list" in said)
    if is_last:
        assert rules(access(lab.config.parent)) == rules(before)
    else:
        assert access(lab.config.parent) == before


@pytest.mark.parametrize(
    "line",
    [
        "topic update TARGET Ordered --read-queues 5 --write-queues 4",
        "topic delete TARGET Plain%",
        "group delete TARGET odd",
        "group reset TARGET idle --to-latest",
    ],
)
def test_killed_at_every_step_run_again_and_undone(line: str, lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    before, args = lab.files(), [lab.target if word == "TARGET" else word for word in line.split()]
    for _step in undo_kills(monkeypatch, lab.target, *args):
        lab.check_files(before)
    lab.run("undo TARGET")
    lab.check_files(before)


def test_the_file_of_settings_is_as_before_byte_for_byte(lab: Lab) -> None:
    line, path = "broker-config set TARGET brokerPermission=4 maxTransferCountOnMessageInMemory=16", lab.judge.settings
    lab.run(line)  # the first change writes all settings, whatever was in the file
    lab.run("undo TARGET")
    before = path.read_bytes()
    assert b"brokerPermission=6" in before
    lab.run(line)
    assert b"brokerPermission=4" in path.read_bytes()
    lab.run("undo TARGET")
    assert path.read_bytes() == before
