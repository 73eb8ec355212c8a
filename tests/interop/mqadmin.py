"""Run every command of ``mqadmin`` against a real broker and ours in the same state.

``python -m tests.interop.mqadmin`` prints a table, with ``--show`` also the outputs that differ. Exit code 1 if a
command differs that should not.
"""

import argparse
import difflib
import json
import re
import sys
import tempfile
import time
from base64 import b64encode
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.interop.broker import SMALL_FILES, VERSIONS, Broker
from tests.interop.engine import NEWEST
from tests.interop.serving import CLUSTER, NAME, Serving

CONFIG = {
    **SMALL_FILES,
    "brokerFastFailureEnable": "false",
    "timerWheelEnable": "true",  # without it 5.3.3 cannot delete a topic
}
_SETTINGS = "most settings are those of the broker's file; serve again with others"
# what is known to differ, and why
NOT_THERE = {
    **dict.fromkeys(("getBrokerConfig", "updateBrokerConfig"), _SETTINGS),
    "getNamesrvConfig": "those settings that our name server has",
    "setCommitLogReadAheadMode": "the commit log is read without advice to the system",
    "clusterAclConfigVersion": "where access control is off, a real broker does not answer at all",
}


@dataclass(frozen=True)
class Command:
    """One call of a command.

    Attributes:
        line: command line; {broker}, {namesrv}, {id}, {unique}, {file} and the like are filled in.
        seconds: time limit; an endless command is stopped then.
    """

    line: str
    seconds: float = 15

    @property
    def name(self) -> str:
        """The name of the command."""
        return self.line.split()[0]


def _all(text: str) -> list[Command]:
    return [Command(line.strip()) for line in text.strip().splitlines()]


_C = f"-c {CLUSTER}"
COMMANDS: list[Command] = [
    *_all(f"""
    updateTopic {_C} -t Made -r 4 -w 4
    updateTopic -b {{broker}} -t Ordered -r 2 -w 2 -o true
    updateTopic -b {{broker}} -t TBW102 -r 2 -w 2
    updateTopicPerm -t Made -b {{broker}} -p 4
    updateTopicPerm -t Made {_C} -p 6
    updateTopicPerm -t NoSuch -b {{broker}} -p 6
    updateTopicList -b {{broker}} -f {{topics}}
    updateOrderConf -m put -t Made -v {NAME}:4
    updateOrderConf -m get -t Made
    updateOrderConf -m delete -t Made
    topicList
    topicList -c
    topicRoute -t Orders
    topicRoute -t Orders -l
    topicRoute -t NoSuch
    topicStatus -t Orders
    topicStatus -t NoSuch
    topicRoute -t rmq_sys_REVIVE_LOG_LabCluster
    topicRoute -t rmq_sys_SYNC_BROKER_MEMBER_lab-a
    topicRoute -t RMQ_SYS_TRANS_HALF_TOPIC
    topicClusterList -t Orders
    allocateMQ -t Orders -i 10.0.0.1,10.0.0.2
    updateSubGroup {_C} -g made -r 3
    updateSubGroup -b {{broker}} -g made -r 5 -d false -q 2
    updateSubGroupList -b {{broker}} -f {{groups}}
    setConsumeMode -b {{broker}} -t Orders -g made -m POP -q 2
    setConsumeMode -b {{broker}} -t Orders -g made -m PULL
    getConsumerConfig -g made
    getConsumerConfig -g nobody
    consumerProgress -g readers
    consumerProgress -g idle -t Orders
    consumerProgress -g nobody
    consumerProgress
    consumerStatus -g readers
    consumerStatus -g nobody
    consumerConnection -g readers
    consumerConnection -g nobody
    producerConnection -g lab-producer -t Orders
    producerConnection -g nobody -t Orders
    producer -b {{broker}}
    queryMsgById -t Orders -i {{id}}
    queryMsgById -t Orders -i {{id}} -g readers -d {{client}}
    queryMsgByKey -t Orders -k key3
    queryMsgByKey -t Orders -k nokey
    queryMsgByUniqueKey -t Orders -i {{unique}}
    queryMsgByUniqueKey -t Orders -i {{unique}} -a
    queryMsgByOffset -t Orders -b {NAME} -i 1 -o 2
    queryMsgByOffset -t Orders -b {NAME} -i 1 -o 99
    queryMsgTraceById -i {{unique}} -t Orders
    printMsg -t Orders -d true
    printMsgByQueue -t Orders -a {NAME} -i 1 -p true -d true -f true
    consumeMessage -t Orders -b {NAME} -i 2 -o 1 -c 2
    queryCq -t Orders -q 0 -i 0 -c 3 -b {{broker}}
    queryCq -t Orders -q 0 -i 1 -c 3 -b {{broker}} -g readers
    queryCq -t Orders -q 9 -i 0 -b {{broker}}
    sendMessage -t Made -p hello -k sent -c red -b {NAME} -i 3
    checkMsgSendRT -t Made -a 3 -s 10
    sendMsgStatus -b {NAME} -s 10 -c 2
    """),
    Command(f"clusterRT {_C} -a 2 -s 16 -i 1", 2.5),
    *_all("""
    resetOffsetByTime -g idle -t Orders -s 0
    resetOffsetByTime -g idle -t Orders -s now
    resetOffsetByTime -g idle -t Orders -s 0 -b {broker} -q 1
    resetOffsetByTime -g nobody -t Orders -s 0
    resetOffsetByTime -g idle -t NoSuch -s 0
    skipAccumulatedMessage -g idle -t Orders
    consumerProgress -g idle
    cloneGroupOffset -s readers -d copied -t Orders
    consumerProgress -g copied
    """),
    Command("startMonitoring", 2),
    *_all(f"""
    statsAll
    statsAll -t Orders
    brokerStatus -b {{broker}}
    brokerStatus {_C}
    getBrokerConfig -b {{broker}}
    updateBrokerConfig -b {{broker}} -k brokerPermission -v 4
    updateBrokerConfig -b {{broker}} -k brokerPermission -v 6
    updateBrokerConfig -b {{broker}} -k flushIntervalCommitLog -v 600
    updateBrokerConfig {_C} -k nosuchsetting -v 1
    brokerConsumeStats -b {{broker}}
    brokerConsumeStats -b {{broker}} -l 5
    clusterList
    clusterList -m
    wipeWritePerm -b {NAME}
    topicRoute -t Orders
    addWritePerm -b {NAME}
    topicRoute -t Orders
    wipeWritePerm -b nobroker
    getNamesrvConfig
    updateNamesrvConfig -k orderMessageEnable -v true
    updateNamesrvConfig -k kvConfigPath -v /x
    updateKvConfig -s NAMES -k a -v b
    deleteKvConfig -s NAMES -k a
    exportMetadata {_C} -f {{folder}}
    exportMetadata {_C} -t -f {{folder}}
    exportMetadata -b {{broker}} -g -f {{folder}}
    exportConfigs {_C} -f {{folder}}
    exportMetrics {_C} -f {{folder}}
    updateAclConfig -b {{broker}} -a accessing -s secretive
    clusterAclConfigVersion -b {{broker}}
    updateGlobalWhiteAddr -b {{broker}} -g 10.0.0.1
    deleteAclConfig -b {{broker}} -a accessing
    createUser -b {{broker}} -u someone -p secret
    updateUser -b {{broker}} -u someone -p other
    getUser -b {{broker}} -u someone
    listUser -b {{broker}}
    copyUser -f {{broker}} -t {{broker}}
    createAcl -b {{broker}} -s User:someone -r Topic:* -a Pub -d Allow
    updateAcl -b {{broker}} -s User:someone -r Topic:* -a Sub -d Allow
    getAcl -b {{broker}} -s User:someone
    listAcl -b {{broker}}
    copyAcl -f {{broker}} -t {{broker}}
    deleteAcl -b {{broker}} -s User:someone
    deleteUser -b {{broker}} -u someone
    getColdDataFlowCtrInfo -b {{broker}}
    updateColdDataFlowCtrGroupConfig -b {{broker}} -g readers -v 1024
    removeColdDataFlowCtrGroupConfig -b {{broker}} -g readers
    setCommitLogReadAheadMode -b {{broker}} -m 1
    exportPopRecord -b {{broker}} -d true
    exportPopRecord {_C} -d false
    """),
    Command("haStatus -b {broker}", 5),
    Command("resetMasterFlushOffset -b {broker} -o 0"),
    Command("getSyncStateSet -a {broker} -b " + NAME, 5),
    Command("getBrokerEpoch -b " + NAME, 5),
    Command("getControllerMetaData -a {broker}"),
    Command("getControllerConfig -a {broker}"),
    Command("updateControllerConfig -a {broker} -k a -v b"),
    Command("electMaster -a {broker} -b 1 -bn " + NAME + " -c " + CLUSTER),
    Command("cleanBrokerMetadata -a {broker} -b 1 -bn " + NAME + " -c " + CLUSTER),
    Command("addBroker -c {broker} -b x.conf"),
    Command("removeBroker -c {broker} -b LabCluster:lab-a:1"),
    *_all(f"""
    dumpCompactionLog -f {{folder}}/nosuch
    exportMetadataInRocksDB -p {{folder}} -t topics
    rocksDBConfigToJson -t topics -p {{folder}}
    rocksDBConfigToJson -t topics -b {{broker}}
    checkRocksdbCqWriteProgress {_C} -n {{namesrv}} -t Orders
    cleanExpiredCQ -b {{broker}}
    cleanUnusedTopic -b {{broker}}
    deleteExpiredCommitLog -b {{broker}}
    deleteSubGroup {_C} -g made -r true
    deleteSubGroup -b {{broker}} -g nobody
    deleteTopic {_C} -t Made
    deleteTopic {_C} -t NoSuch
    topicList
    consumerProgress
    updateStaticTopic -t Static -qn 4 {_C}
    remappingStaticTopic -t Static {_C}
    getBrokerLiteInfo {_C}
    getParentTopicInfo -p Orders
    getLiteTopicInfo -p Orders -l one
    getLiteGroupInfo -p Orders -g readers
    getLiteClientInfo -p Orders -g readers -c nobody
    triggerLiteDispatch -p Orders -g readers
    switchTimerEngine {_C} -e F
    switchTimerEngine {_C} -e R
    """),
]
# what real brokers have besides: 5.3.3 counts a topic among its own groups, and timers have a topic; groups of tools,
# which come and go; and the end of a command that is stopped because it goes on for ever
_BESIDES = re.compile(
    r"consumerGroup=Orders\b|\bOrders +Orders\b|\brmq_sys_wheel_timer\b|^wipe write|^add write|TOOLS_CONSUMER|"
    r"OFFSET_MOVED_EVENT \S+ |__MONITOR_CONSUMER|CLusterSendMsgRTCommand command failed"
)
# of threads that a shutdown interrupts: as often as chance has it
_INTERRUPTED = re.compile(r"^java\.lang\.InterruptedException.*\n?", re.MULTILINE)
# of these only the names count: the values are those of a process and its machine
_NAMES = re.compile(r"^(?:\S+ +)?(\w+) *:.*")


def plain(text: str) -> list[str]:
    """Lines of an output without times, addresses, ids, column widths and machine-specific values."""
    text = _INTERRUPTED.sub("\n", re.sub(r"\n\tat .*", "", text)).replace("MessageTrack [", "\nMessageTrack [")
    text = re.sub(r"See https?://.* for further details\.?[^\n]*", "", text)
    text = re.sub(r"\b[0-9A-F]{40,64}\b", "UNIQUE", text)
    text = re.sub(r"\brt=\d+ms|\bspentTimeMills=\d+|\b(true|false) +\d+$", "RT", text, flags=re.MULTILINE)
    text = re.sub(r"\b\d{4}-\d{2}-\d{2}[ T]\d{2}:\d{2}:\d{2}([.,:]\d+)?", "TIME", text)
    text = re.sub(r"\b[0-9A-F]{32}\b", "ID", text)
    text = re.sub(r"(127\.0\.0\.1|[0-9.]+)@[0-9a-zA-Z@#.-]+", "CLIENT", text)
    text = re.sub(r"/?127\.0\.0\.1:\d+", "ADDRESS", text)
    text = re.sub(r"(?<![\w.])-?\d+\.\d+(E-?\d+)?(?![\w.])", "N", text)
    text = re.sub(r"\bMQ[A-Za-z]+Exception: (CODE: -?\d+).*", r"EXCEPTION \1", text)
    text = re.sub(r"(CODE: -?\d+)\s+DESC: .*", r"\1", text)
    text = re.sub(r"\b\d{14,17}\b|\b1[6-9]\d{11}\b|\b1[6-9]\d{8}\b", "TIME", text)
    text = re.sub(r"/tmp/[^\s\"]*", "PATH", text)
    text = re.sub(r"(MasterCommitLogMaxOffset\s+)\d+", r"\1N", text)
    lines = [" ".join(line.split()) for line in text.splitlines()]
    return [line for line in lines if not (line.startswith("For more information") or _BESIDES.search(line))]


def told(command: Command, text: str) -> list[str]:
    """The comparable part of an output; tables in hash order are sorted."""
    lines = plain(text)
    if command.name == "brokerStatus":
        lines = [_NAMES.sub(r"\1", line) for line in lines if "_PATH" not in line]
    elif command.name == "statsAll":  # messages of a day are known after some time
        lines = [" ".join(line.split()[:3]) for line in lines]
    elif command.line == "consumerProgress" or command.name == "clusterList":
        lines = [re.sub(r"\b\d+\b", "N", line) for line in lines]
    elif command.name == "getBrokerLiteInfo":
        # queues: a broker counts those that were only asked for, too; offsets: a client commits those of its retries
        # some 40 s after it has joined
        lines = [re.sub(r"(?<=default)((?: \d+){4}) \d+ \d+", r"\1 N N", line) for line in lines]
    elif command.name == "producer":  # what the tools leave behind themselves
        lines = list(set(lines))
    lines = [line.rstrip(",") for line in lines]  # members of JSON, in the order of a hash table
    return sorted(filter(None, lines))


def prepare(broker: Broker, folder: Path) -> dict[str, str]:
    """Bring a broker into the initial state; returns values for the commands."""
    fields = {
        "topic": "Orders", "defaultTopic": "TBW102", "readQueueNums": "4", "writeQueueNums": "4", "perm": "6",
        "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false",
    }  # fmt: skip
    assert broker.ask("request", code=17, fields=fields)["code"] == 0
    group = {"groupName": "readers", "retryQueueNums": 1}
    for name in ("readers", "idle"):
        body = json.dumps({**group, "groupName": name}).encode()
        assert broker.ask("request", code=200, fields={}, base64=b64encode(body).decode())["code"] == 0
    time.sleep(0.5)
    sent = [broker.ask("send", topic="Orders", keys=f"key{n}", queueId=n % 4, tag="ab"[n % 2]) for n in range(20)]
    broker.ask("heartbeat")
    broker.ask("consume", group="readers", topic="Orders", failures=0, most=1, level=0)
    broker.wait_for(lambda rows: len(rows) >= 20, 60)
    for queue in range(4):
        broker.ask("setOffset", group="readers", topic="Orders", queueId=queue, offset=5)
        broker.ask("setOffset", group="idle", topic="Orders", queueId=queue, offset=queue)
    folder.mkdir()
    topic = {"topicName": "Listed", "readQueueNums": 3, "writeQueueNums": 3, "perm": 6}
    (folder / "topics.json").write_text(json.dumps([topic]))
    (folder / "groups.json").write_text(json.dumps([{"groupName": "listed", "retryMaxTimes": 7}]))
    seen = broker.ask("admin", arguments=["consumerConnection", "-g", "readers"], seconds=15)["said"]
    client = re.findall(r"\S+@\S+", seen)[0]
    return {
        "id": sent[7]["offsetMsgId"], "unique": sent[7]["msgId"], "topics": str(folder / "topics.json"),
        "groups": str(folder / "groups.json"), "folder": str(folder), "client": client,
    }  # fmt: skip


def outputs(broker: Broker, commands: Iterable[Command], filled: dict[str, str]) -> list[str]:
    """The output of each command."""
    result = []
    for command in commands:
        arguments = [word.format_map(filled) for word in command.line.split()]
        answer: dict[str, Any] = broker.ask("admin", arguments=arguments, seconds=command.seconds)
        ending = "" if answer["ended"] else "\n(goes on)"
        result.append(answer["said"] + ending)
    return result


def on_real(broker: Broker, folder: Path, commands: Iterable[Command]) -> list[str]:
    """The outputs with the real broker."""
    folder.mkdir()
    (folder / "store").mkdir()
    broker.boot(folder / "store", dict(CONFIG))
    addresses = broker.ask("addresses")
    try:
        return outputs(broker, commands, {**addresses, **prepare(broker, folder / "files")})
    finally:
        broker.stop()


def on_ours(broker: Broker, folder: Path, commands: Iterable[Command]) -> list[str]:
    """The outputs with ours."""
    folder.mkdir()
    conf = folder / "broker.conf"
    conf.write_text("".join(f"{name}={value}\n" for name, value in CONFIG.items()))
    options = ("--create", "--engine", broker.engine, "--broker-conf", str(conf))
    with Serving(folder / "store", *options) as serving:
        broker.connect(serving.namesrv, serving.broker)
        addresses = {"broker": serving.broker, "namesrv": serving.namesrv}
        try:
            result = outputs(broker, commands, {**addresses, **prepare(broker, folder / "files")})
        finally:
            broker.stop()
        code, stderr = serving.end()
        assert code == 0, stderr
        assert "Traceback" not in stderr, stderr
    return result


Tell = Callable[[str], None]


def run(version: str, wanted: str, *, show: bool, raw: bool = False, tell: Tell = print) -> dict[str, list[str]]:
    """Run the commands of a release on both; returns results by name."""
    result: dict[str, list[str]] = {}
    with tempfile.TemporaryDirectory(prefix="rmqtool-mqadmin-") as made, Broker(version) as broker:
        known = set(broker.ask("admins"))
        tried = {command.name for command in COMMANDS}
        if missing := known - tried:
            raise SystemExit(f"{version} has commands that are not tried: {', '.join(sorted(missing))}")
        commands = [value for value in COMMANDS if value.name in known and re.search(wanted, value.line)]
        real = on_real(broker, Path(made, "real"), commands)
        ours = on_ours(broker, Path(made, "ours"), commands)
    for command, first, second in zip(commands, real, ours, strict=True):
        if first.startswith("usage: "):
            continue  # that release does not have the option
        real_lines, our_lines = told(command, first), told(command, second)
        verdict = "not there" if command.name in NOT_THERE else "differs"
        if real_lines == our_lines:
            verdict = "same"
        result.setdefault(command.name, []).append(verdict)
        why = f": {NOT_THERE[command.name]}" if verdict == "not there" else ""
        tell(f"{version}  {verdict:<9}  {command.line}{why}")
        if raw:
            tell(f"{first}\n--- ours\n{second}")
        elif show and verdict != "same":
            lines = difflib.unified_diff(real_lines, our_lines, "real", "ours", lineterm="", n=1)
            tell("\n".join(f"    {line}" for line in lines))
    return result


def main() -> int:
    """Run and print the result."""
    options = argparse.ArgumentParser(prog="python -m tests.interop.mqadmin", description=__doc__)
    options.add_argument(
        "--release", choices=(*VERSIONS, NEWEST), help="of mqadmin and the real broker; else both older"
    )
    options.add_argument("--only", default="", help="expression that the lines of the commands must contain")
    options.add_argument("--show", action="store_true", help="what differs")
    options.add_argument("--raw", action="store_true", help="all that both said, as they said it")
    chosen = options.parse_args()
    total: list[str] = []
    for version in [chosen.release] if chosen.release else VERSIONS:
        for verdicts in run(version, chosen.only, show=chosen.show, raw=chosen.raw).values():
            total += verdicts
    text = ", ".join(f"{total.count(verdict)} {verdict}" for verdict in sorted(set(total)))
    print(f"{len(total)} calls: {text}")
    return 1 if "differs" in total else 0


if __name__ == "__main__":
    sys.exit(main())
