"""Random lives of real groups - DLedger, with a controller, a master with slaves: what ``replicas`` and ``recover
--with`` foretell, and what the brokers do when they start together.

    python -m tests.interop.groups --release 5.3.3 --kind controller --rounds 5 --seed 1

Three brokers get messages while some of them are killed and started again; in the end all are killed. Copies of their
directories, one of them damaged in some rounds, start together. Judged are the leader, where logs are cut and which
messages that costs, what is served then, and that no message is called unacknowledged which was acknowledged.
``salvage`` of all copies has to have every message of every copy. With ``--advised`` the steps that ``replicas`` names
are carried out first, and all logs have to be equal in the end.
"""

import argparse
import json
import re
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from formats.layouts.derived import HEAD_V4_V4
from rmqtool.store.layout.broker_conf import load
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import CommitLog, LocatedRecord
from tests.cli.running import rmqtool
from tests.interop.broker import Broker
from tests.interop.replicas import CONTROLLER_OPTIONS, differences, log_of
from tests.interop.test_dledger_queues import free_port
from tests.interop.test_namesrv import name_server
from tests.interop.test_roles import MAX_OFFSET, pull_records
from tests.roles import Node

KINDS = ("dledger", "controller", "classic")
TOPICS = ("Orders", "Invoices", "Events")
_MASTERS = ("SYNC_MASTER", "ASYNC_MASTER")
_LOOKS, _PAUSE = 1800, 0.1  # on a busy machine too
_A_MINUTE = 600  # looks
_NO_TOPICS = ("SCHEDULE_TOPIC_XXXX", "RMQ_SYS_", "rmq_sys_", "%")
_SETTINGS = {
    "brokerClusterName": "Shop", "brokerName": "store-1", "mappedFileSizeCommitLog": "49152",
    "mappedFileSizeConsumeQueue": "1200", "maxHashSlotNum": "150", "maxIndexNum": "600", "diskMaxUsedSpaceRatio": "95",
}  # fmt: skip
Messages = set[tuple[str, int, int, bytes]]  # topic, queue id, queue offset, body


@dataclass
class Group:
    """Brokers of a group, each in a JVM of its own, on directories that outlive it."""

    release: str
    kind: str
    nodes: dict[str, Node]
    controller: str
    namesrv: str
    running: dict[str, Broker] = field(default_factory=dict)
    cut_off: dict[str, Broker] = field(default_factory=dict)  # alive, and stopped by a signal

    def start(self, *names: str) -> None:
        """Start members at once; slaves after their master."""
        if self.kind == "classic":
            for name in sorted(names, key=lambda name: self.nodes[name].settings["brokerId"] != "0"):
                self._start(name)
            return
        with ThreadPoolExecutor(len(names)) as pool:
            for started in [pool.submit(self._start, name) for name in names]:
                started.result()

    def _start(self, name: str) -> None:
        jvm, node = Broker(self.release), self.nodes[name]
        self.running[name] = jvm
        settings = node.settings
        if self.kind == "controller":
            settings |= {"controllerAddr": self.controller}
        elif self.kind == "dledger":
            settings |= {"brokerId": "-1"}
        elif settings["brokerId"] != "0":
            jvm.boot(node.store, settings, follows=self.namesrv)
            return
        jvm.boot(node.store, settings, namesrv=self.namesrv, waits=False)

    def appoint(self, master: str) -> None:
        """Change the settings of a master with slaves: which one is the master at the next start."""
        role = next(role for node in self.nodes.values() if (role := node.settings["brokerRole"]) != "SLAVE")
        for number, (name, node) in enumerate(self.nodes.items(), 1):
            mine = {"brokerRole": role, "brokerId": "0"} if name == master else {
                "brokerRole": "SLAVE", "brokerId": str(number),
            }  # fmt: skip
            node.conf.write_text("".join(f"{key}={value}\n" for key, value in {**node.settings, **mine}.items()))

    def kill(self, *names: str) -> None:
        """Kill members."""
        for name in names:
            self.running.pop(name).kill()

    def pause(self, *names: str) -> None:
        """Cut members off: they hear and say nothing, as in a partition of the network."""
        for name in names:
            self.cut_off[name] = self.running.pop(name)
            self.cut_off[name].pause()

    def resume(self, *names: str) -> None:
        """Let members that were cut off come back."""
        for name in names:
            self.running[name] = self.cut_off.pop(name)
            self.running[name].resume()

    def close(self) -> None:
        """Stop all."""
        self.running |= self.cut_off
        self.cut_off.clear()
        for name in [*self.running]:
            self.kill(name)

    def leader(self) -> str:
        """Wait for a leader; returns its name."""
        for _ in range(_LOOKS):
            found = [name for name, jvm in self.running.items() if jvm.ask("log")["role"] in _MASTERS]
            if len(found) == 1:
                return found[0]
            time.sleep(_PAUSE)
        raise AssertionError(f"leaders: {found}")

    def has_leader(self) -> bool:
        """Whether a leader comes within a minute."""
        for _ in range(_A_MINUTE):
            if any(jvm.ask("log")["role"] in _MASTERS for jvm in self.running.values()):
                return True
            time.sleep(_PAUSE)
        return False

    def settle(self) -> str:
        """Wait until the members' logs have the same end; returns the leader."""
        for _ in range(_LOOKS):
            leader = self.leader()
            ends = {jvm.ask("log")["end"] for jvm in self.running.values()}
            if len(ends) == 1:
                return leader
            time.sleep(_PAUSE)
        raise AssertionError(f"ends of the logs: {ends}")


@dataclass
class Life:
    """What producers know."""

    acknowledged: dict[str, tuple[str, int, int]] = field(default_factory=dict)  # body to topic, queue, offset
    story: list[str] = field(default_factory=list)
    alone: tuple[str, Messages] | None = None  # a member that stayed cut off, and the messages of its own


def _make_nodes(kind: str, folder: Path, count: int, rng: Random) -> dict[str, Node]:
    nodes = {}
    ports = [free_port() for _ in range(count)]
    peers = ";".join(f"n{number}-127.0.0.1:{port}" for number, port in enumerate(ports))
    all_ack = {"allAckInSyncStateSet": rng.choice(("true", "false"))}
    role, in_sync = rng.choice((("ASYNC_MASTER", 1), ("SYNC_MASTER", 1), ("SYNC_MASTER", 2)))
    pieces = rng.choice(("700", "32768"))  # of the log, as a slave gets it
    for number in range(count):
        name = f"n{number}"
        (folder / name).mkdir(parents=True)
        more = (
            {"enableDLegerCommitLog": "true", "dLegerGroup": "store-1", "dLegerPeers": peers, "dLegerSelfId": name}
            if kind == "dledger"
            else {"enableControllerMode": "true", **all_ack}
            if kind == "controller"
            else {
                "brokerRole": "SLAVE" if number else role, "brokerId": str(number), "haTransferBatchSize": pieces,
                "totalReplicas": str(count), "inSyncReplicas": str(in_sync),
            }
        )  # fmt: skip
        conf = folder / f"{name}.conf"
        conf.write_text("".join(f"{key}={value}\n" for key, value in {**_SETTINGS, **more}.items()))
        nodes[name] = Node(folder / name, conf)
    return nodes


def send(group: Group, life: Life, prefix: str, count: int, how: str = "sync") -> None:
    """Send messages by the leader's JVM."""
    jvm, topic = group.running[group.leader()], TOPICS[len(life.story) % len(TOPICS)]
    rows: list[dict[str, Any]] = []
    while how == "sync" and not any("status" in row for row in rows):  # a new leader is not registered at once
        assert len(rows) < _LOOKS, rows[-1]
        time.sleep(_PAUSE)
        jvm.ask("topic", topic=topic)  # and so its broker registers
        rows += jvm.ask("sendMany", topic=topic, prefix=f"{prefix}{len(rows)}-", count=1, threads=1, how="sync")
    rows += jvm.ask("sendMany", topic=topic, prefix=prefix, count=count, threads=4, how=how)
    for row in rows:
        if row.get("status") == "SEND_OK":
            life.acknowledged[row["keys"]] = (topic, row["queueId"], row["queueOffset"])
    life.story.append(f"{how} {prefix} to {topic}: {len(rows)} answers")


def live_classic(group: Group, rng: Random, life: Life) -> None:
    """Slaves are killed during work, and so is their master before they have all; another one takes its place."""
    names = [*group.nodes]
    group.start(*names)
    send(group, life, "first-", rng.randrange(40, 120))
    if rng.random() < 0.7:
        group.settle()
    for turn in range(rng.randrange(1, 4)):
        master = group.leader()
        slaves = [name for name in group.running if name != master]
        match rng.choice(("slave", "meanwhile", "switch", "restart")):
            case "slave" if slaves:
                gone = rng.choice(slaves)
                group.kill(gone)
                life.story.append(f"killed {gone}")
                send(group, life, f"without-{turn}-", rng.randrange(10, 60), rng.choice(("sync", "oneway")))
                if rng.random() < 0.5:
                    group.start(gone)
                    life.story.append(f"started {gone}")
            case "switch" if slaves:
                *gone, heir = rng.sample(slaves, len(slaves))
                group.kill(*gone)
                if rng.random() < 0.5:  # what is acknowledged, or taken, by the master alone
                    group.kill(heir)
                    send(group, life, f"alone-{turn}-", rng.randrange(3, 20), "oneway")
                    time.sleep(1)
                    group.kill(master)
                else:
                    group.kill(master)
                    group.kill(heir)
                group.appoint(heir)
                group.start(heir, *gone)
                life.story.append(f"killed {master}; {heir} is the master")
                send(group, life, f"heir-{turn}-", rng.randrange(3, 40))
            case "restart":
                gone = [*group.running]
                group.kill(*gone)
                group.start(*gone)
                life.story.append("all killed, and started")
            case _:
                with ThreadPoolExecutor(1) as beside:
                    sending = beside.submit(send, group, life, f"meanwhile-{turn}-", rng.randrange(60, 200))
                    time.sleep(rng.random())
                    if slaves:
                        jvm = group.running.pop(gone := rng.choice(slaves))
                        jvm.kill()
                        life.story.append(f"killed {gone} meanwhile")
                    sending.result()
    jvm = group.running[group.leader()]
    jvm.ask("sendMany", topic="Events", prefix="oneway-", count=rng.randrange(1, 60), threads=4, how="oneway")
    group.close()
    life.story.append("killed all")


def live_parted(group: Group, rng: Random, life: Life) -> None:
    """The leader is cut off with messages that no other member gets; these elect another one, and get others.

    The others are stopped, and killed when the leader is stopped too: what waits in their sockets is gone then, and
    the leader has not seen their connections end.
    """
    names = [*group.nodes]
    group.start(*names)
    send(group, life, "first-", rng.randrange(40, 120))
    leader = group.settle()
    others = [name for name in names if name != leader]
    for topic in TOPICS:  # which nobody can be asked for later
        group.running[leader].ask("topic", topic=topic)
    group.pause(*others)
    send(group, life, "alone-", rng.randrange(3, 12), "oneway")
    time.sleep(1)
    group.pause(leader)
    for name in others:
        group.cut_off.pop(name).kill()
    alone = {message for message in messages_of(group.nodes[leader]) if message[3].startswith(b"alone-")}
    assert alone, "the leader has no messages of its own"
    group.start(*others)
    life.story.append(f"{leader} is cut off with {len(alone)} messages of its own")
    if group.has_leader():  # a controller elects only a replica that was in sync with the master
        send(group, life, "others-", rng.randrange(10, 60))
    if rng.random() < 0.6:
        group.resume(leader)
        life.story.append(f"{leader} is back, under {group.leader()}")
        send(group, life, "together-", rng.randrange(10, 60))
    else:
        life.alone = str(group.nodes[leader].store), alone
    group.close()
    life.story.append("killed all")


def live(group: Group, rng: Random, life: Life) -> None:
    """Some messages, and some kills; in the end all are dead."""
    if group.kind == "classic":
        live_classic(group, rng, life)
        return
    names = [*group.nodes]
    group.start(*names)
    send(group, life, "first-", rng.randrange(40, 120))
    for turn in range(rng.randrange(2, 5)):
        leader = group.leader()
        followers = [name for name in group.running if name != leader]
        led = True
        match rng.choice(("follower", "leader", "alone")):
            case "follower" if len(followers) > (group.kind == "dledger"):  # a majority stays
                gone = [rng.choice(followers)]
                group.kill(*gone)
                life.story.append(f"killed {gone}")
                send(group, life, f"without-{turn}-", rng.randrange(10, 60))
            case "leader":
                gone = [leader]
                group.kill(*gone)
                life.story.append(f"killed leader {gone}")
                # a controller elects only a replica that was in sync with the master
                led = len(group.running) > 1 and (group.kind == "dledger" or group.has_leader())
                if led:
                    send(group, life, f"after-{turn}-", rng.randrange(10, 60))
            case _:
                gone = followers
                group.kill(*gone)
                life.story.append(f"killed {gone}; {leader} alone")
                send(group, life, f"alone-{turn}-", rng.randrange(3, 12), "oneway")
                time.sleep(1)
                # its messages may contradict those of the next leader; a controller makes no other one a leader
                if group.kind == "dledger" and len(followers) > 1 and rng.random() < 0.5:
                    gone = [*gone, leader]
                    group.kill(leader)
                    back = [*followers]
                    group.start(*back)
                    life.story.append(f"killed {leader}, started {back}")
                    group.leader()
                    send(group, life, f"others-{turn}-", rng.randrange(3, 40))
                    gone = [leader]
        if rng.random() < 0.7 or len(group.running) < 2 or not led:
            group.start(*gone)
            life.story.append(f"started {gone}")
            group.leader()
    if len(group.running) > 1:
        leader = group.leader()
        with ThreadPoolExecutor(1) as beside:
            sending: Future[None] = beside.submit(send, group, life, "last-", 30)
            sending.result()
            group.running[leader].ask(
                "sendMany", topic="Events", prefix="oneway-", count=rng.randrange(1, 40), threads=4, how="oneway"
            )
    group.close()
    life.story.append("killed all")


def messages_of(node: Node, *, crc: bool = True) -> Messages:
    """Every message of a log that consumers can get, without ``crc`` also those with a rotten body.

    There can be two at one queue offset: a start has cut the queue entry of the earlier one.
    """
    result: Messages = set()
    for item in CommitLog(StoreLayout(str(node.store), load(str(node.conf)))).walk(crc=crc):
        if isinstance(item, LocatedRecord):
            topic = item.record.topic.decode("utf-8", "replace")
            if not topic.startswith(_NO_TOPICS):
                result.add((topic, item.record.queue_id, item.record.queue_offset, bytes(item.record.body)))
    return result


def served_by(broker: Broker, queues: set[tuple[str, int]]) -> Messages:
    """Every message that a broker serves."""
    result = set()
    for topic in {topic for topic, _queue in queues}:
        broker.ask("topic", topic=topic)  # a new leader may not know it yet
    for topic, queue in queues:
        place = {"topic": topic, "queueId": str(queue)}
        end = int(broker.ask("request", code=MAX_OFFSET, fields=place)["fields"]["offset"])
        if end:
            records = pull_records(broker, topic, queue, end, crc=False)
            result |= {(topic, queue, record.queue_offset, record.body) for record in records}
    return result


def ask(command: str, *args: object) -> dict[str, Any]:
    """A command's JSON."""
    result = rmqtool(command, *args, "--output", "json")
    assert result.code in (0, 1), result.err
    answer: dict[str, Any] = json.loads(result.out)
    return answer


def carry_out(steps: Sequence[str]) -> set[str]:
    """Carry out what is to be done before the start; returns the directories that were changed."""
    changed = set()
    for step in steps:
        if found := re.match(r"Replace the directory (?P<store>\S+) by a copy of (?P<other>\S+) before", step):
            shutil.rmtree(found["store"])
            shutil.copytree(found["other"], found["store"])
        elif found := re.match(r"Empty the directory (?P<store>\S+) before", step):
            shutil.rmtree(found["store"])
            Path(found["store"]).mkdir()
        elif found := re.match(r"rmqtool (?P<verb>truncate|rebuild|recover) (?P<store>\S+) (.+), before", step):
            result = rmqtool(found["verb"], found["store"], *found[3].split(), "--yes")
            assert result.code == 0, result.err
        if found and not step.startswith(("rmqtool rebuild", "rmqtool recover")):  # which leave the messages
            changed.add(found["store"])
    return changed


def lost_by_merging(nodes: Sequence[Node], before: dict[str, Messages], new: Path) -> list[str]:
    """Messages of any copy that ``salvage`` of all has neither in the new store nor in ``lost+found``."""
    confs = [option for node in nodes for option in node.options()]
    result = rmqtool("salvage", *(node.store for node in nodes), new, *confs)
    assert result.code in (0, 1), result.err
    have = messages_of(Node(new, nodes[0].conf))
    places = {message[:3] for message in have}
    kept = b"".join(path.read_bytes() for path in (new / "lost+found").rglob("*") if path.is_file())
    every = set().union(*before.values())
    bodies, wanted = (Counter((topic, body) for topic, _queue, _at, body in messages) for messages in (have, every))
    wrong = [f"{topic} {body!r} is not in the merged store" for topic, body in wanted - bodies if body not in kept]
    wrong += [f"{topic} {body!r} is there twice, or was in no copy" for topic, body in bodies - wanted]
    rotten = set().union(*(messages_of(node, crc=False) for node in nodes)) - every
    moved = {message[:2] for message in rotten}  # queues without a message that no copy has intact
    lacking = {message[:3] for message in every if message[:2] not in moved} - places
    return wrong + [f"{place} has nothing in the merged store" for place in lacking]


def foretold_unserved(node: Node) -> tuple[int, int]:
    """Number of a member's messages that its broker will not serve, as ``recover`` says: at least, and at most."""
    plan = ask("recover", node.store, "--dry-run", *node.options())
    if plan["dledger"] is None:
        return 0, 0
    most, less = (
        sum(row["messages"] for row in rows if not row["topic"].startswith(_NO_TOPICS))
        for rows in ([*plan["dledger"]["unserved"], *plan["lost"]], plan["dledger"]["behindDamage"])
    )
    return most - less, most


def judge(group: Group, life: Life, report: list[str], *, advised: bool = False) -> list[str]:
    """Compare what the commands say with what the group does; returns what differs.

    Args:
        advised: carry out the steps of the advice before the start.
    """
    nodes = list(group.nodes.values())
    stores = [node.store for node in nodes]
    confs = [word for node in nodes for word in node.options()]
    wrong: list[str] = []
    replicas = ask("replicas", *stores, *confs)
    advice = replicas["advice"]
    before = {str(node.store): messages_of(node) for node in nodes}
    started = ask(
        "recover", stores[0], "--dry-run", *(word for store in stores[1:] for word in ("--with", store)),
        *nodes[0].options(),
    )  # fmt: skip
    foretold = started["group"]
    report.append(f"advice {Path(advice['store']).name}, leaders {[Path(x).name for x in foretold['leaders']]}")
    new = stores[0].parent / "merged"
    wrong += lost_by_merging(nodes, before, new)
    shutil.rmtree(new, ignore_errors=True)
    best = before[advice["store"]]
    lost = set().union(*before.values()) - best
    if advice["lost"] + advice["damaged"] != len(lost):
        wrong.append(
            f"lost: {advice['lost']}, damaged: {advice['damaged']}, but {len(lost)} messages are elsewhere alone"
        )
    gone = [body for body, place in life.acknowledged.items() if (*place, body.encode()) not in best]
    if gone:
        report.append(f"{len(gone)} acknowledged messages are not in the advised copy")
        if not advice["lost"] >= len([1 for b in gone if any(b.encode() == m[3] for m in lost)]):
            wrong.append("acknowledged messages that it does not count as lost")
    acknowledged = {(*place, body.encode()) for body, place in life.acknowledged.items()}
    for row in replicas["messages"]:
        if row["acknowledged"] == "no" and row["what"] == "alone":
            at = range(row["fromOffset"], row["toOffset"])
            wrong += [
                f"{message} was acknowledged, and the report says no"
                for message in before[row["store"]]
                & acknowledged - set().union(*(has for store, has in before.items() if store != row["store"]))
                if message[:2] == (row["topic"], row["queueId"]) and message[2] in at
            ]
    if life.alone is not None:
        store, own = life.alone
        named = {
            (row["topic"], row["queueId"], at): row["acknowledged"]
            for row in replicas["messages"]
            if row["store"] == store and row["what"] != "damaged"
            for at in range(row["fromOffset"], row["toOffset"])
        }
        said = {message: named.get(message[:3]) for message in own}
        report.append(f"{Path(store).name} alone has {len(own)}, acknowledged: {sorted({*map(str, said.values())})}")
        # a master may acknowledge alone what its settings let it
        right = ("no",) if group.kind == "dledger" else ("no", "unknown")
        wrong += [f"{message}: the report says {word!r} of it" for message, word in said.items() if word not in right]
    first = next(name for name, node in group.nodes.items() if str(node.store) == advice["store"])
    changed = carry_out(advice["steps"]) if advised else set()
    if changed:
        report.append(f"changed before the start: {[Path(path).name for path in changed]}")
    unserved = {str(node.store): foretold_unserved(node) for node in nodes if any(node.store.iterdir())}
    if group.kind == "classic":
        group.appoint(first)
        group.start(*group.nodes)
    elif group.kind == "controller":
        group.start(first)
        if group.leader() != first:
            wrong.append("the advised copy is no master")
        group.start(*(name for name in group.nodes if name != first))
    else:
        step = (
            next((step for step in advice["steps"] if step.startswith("Start the brokers of /")), "") if advised else ""
        )
        early = [name for name in group.nodes if str(group.nodes[name].store) in step.partition(" first")[0].split()]
        group.start(*(early or group.nodes))
        if early:
            if group.leader() != first:
                wrong.append("the advised member is not the leader")
            group.start(*(name for name in group.nodes if name not in early))
    leader = str(group.nodes[group.settle() if advised or group.kind != "classic" else group.leader()].store)
    jvm = group.running[Path(leader).name]
    report.append(f"leader {Path(leader).name}")
    if leader not in foretold["leaders"]:
        wrong.append(f"the leader is {leader}")
    queues = {(m[0], m[1]) for messages in before.values() for m in messages}
    time.sleep(1)
    served = served_by(jvm, queues)
    rotten = messages_of(group.nodes[Path(leader).name], crc=False)
    missing, more = before[leader] - served, served - before[leader] - rotten
    cut = advice["cut"] if leader == advice["store"] and group.kind != "dledger" else 0
    least, most = unserved[leader]
    if not least + cut <= len(missing) <= most + cut or more:
        foretold_missing = f"foretold {least} to {most} and {cut} cut"
        wrong.append(f"of the leader's messages {len(missing)} are not served ({foretold_missing}), {len(more)} more")
    if advised:
        send(group, life, "new-", 30)
        group.settle()
    for name in [*group.running]:
        group.running.pop(name).__exit__()
    if advised:
        ends = (
            [int(log_of(Path(path))[0]) + len(log_of(Path(path))[1]) for path in before]
            if (group.kind != "dledger")
            else []
        )
        wrong += [
            f"the logs of {store} and the leader differ: {apart[:3]}"
            for store in before
            if ends and (apart := differences(Path(store), Path(leader), min(ends)))
        ]
    after = {store: messages_of(Node(Path(store), Path(f"{store}.conf"))) for store in before}
    led_to = sys.maxsize  # where the leader's log ends; what it has cut off stays in its file
    if cut:
        led_to = next(row["startEndOffset"] for row in replicas["copies"] if row["store"] == leader)
        after[leader] -= missing
    for store, had in before.items():
        if store in changed:
            if after[store] != after[leader]:
                wrong.append(f"{store} and its leader differ in {len(after[store] ^ after[leader])} messages")
            continue
        row = next((r for r in foretold["following"] if (r["store"], r["master"]) == (store, leader)), None)
        if store == leader:
            if len(had - after[store]) > (cut if group.kind != "dledger" else most):
                wrong.append(f"the leader lost {len(had - after[store])}")
            continue
        if row is None:
            wrong.append(f"nothing about {store} under {leader}")
            continue
        report.append(f"{Path(store).name}: {row['what']} at {row['at']}, {row['messages']} lost")
        dropped = len(had - after[store])
        if row["messages"] != dropped:
            wrong.append(f"{store}: {dropped} lost, foretold {row['messages']} ({row['what']} at {row['at']})")
        if group.kind != "dledger":
            end = min(led_to, *(int(log_of(Path(path))[0]) + len(log_of(Path(path))[1]) for path in (store, leader)))
            apart = differences(Path(store), Path(leader), end)
            if bool(apart) is not (row["what"] in ("keeps-damage", "breaks")):
                wrong.append(f"{store}: {row['what']} ({row['why']}), and its log differs in {len(apart)} places")
        apart = after[store] ^ after[leader]
        if row["what"] == "keeps-damage":
            apart -= after[leader]  # what it has not is what is damaged in it
        if apart:
            wrong.append(f"{store} and its leader differ in {len(apart)} messages")
    return wrong


def damage(group: Group, rng: Random) -> str:
    """Flip bytes of the log of a member that has messages."""
    node, items = rng.choice(
        [
            (node, items)
            for node in group.nodes.values()
            if (items := [
                item
                for item in CommitLog(StoreLayout(str(node.store), load(str(node.conf)))).walk()
                if isinstance(item, LocatedRecord)
            ])
        ]
    )  # fmt: skip
    item = rng.choice(items[len(items) // 2 :])
    path = Path(item.file.path)
    data = bytearray(path.read_bytes())
    at, size = item.at + HEAD_V4_V4.size, rng.choice((1, 40, 4000))
    for byte in range(at, min(at + size, len(data))):
        data[byte] ^= 0xA5
    path.write_bytes(data)
    return f"damaged {size} bytes of {node.store.name} at {item.physical_offset + at - item.at}"


@contextmanager
def made(release: str, kind: str, seed: int, *, parted: bool = False) -> Iterator[tuple[Group, Life, Path]]:
    """A group that has lived, all members killed.

    Args:
        parted: whether its leader is cut off from the others for a while.
    """
    rng = Random(seed)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="groups-")))
        _process, address = stack.enter_context(name_server())
        controller = ""
        if kind == "controller":
            jvm = stack.enter_context(Broker(release, *CONTROLLER_OPTIONS))
            controller = jvm.ask("controller", store=str(folder / "controller"), fileSize=65_536)["address"]
        group = Group(release, kind, _make_nodes(kind, folder / "group", 3, rng), controller, address)
        stack.callback(group.close)
        life = Life()
        (live_parted if parted else live)(group, rng, life)
        yield group, life, folder


@contextmanager
def kept(release: str, where: Path) -> Iterator[Group]:
    """A copy of the members of a DLedger group, as a round has kept it before its start."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="groups-"))) / "group"
        shutil.copytree(where / "kept", folder)
        nodes = {conf.stem: Node(conf.with_suffix(""), conf) for conf in sorted(folder.glob("*.conf"))}
        _process, address = stack.enter_context(name_server())
        group = Group(release, "dledger", nodes, "", address)
        stack.callback(group.close)
        yield group


def main() -> int:
    """Run rounds; returns 1 if anything differs."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.interop.groups", description=(__doc__ or "").split("\n\n")[0]
    )
    parser.add_argument("--release", default="5.3.3")
    parser.add_argument("--kind", choices=KINDS, default="dledger")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--damage", action="store_true", help="damage a copy before the start")
    parser.add_argument("--parted", action="store_true", help="cut the leader off from the others for a while")
    parser.add_argument("--advised", action="store_true", help="carry out what replicas advises before the start")
    parser.add_argument("--keep", type=Path, help="keep directories of rounds that differ here")
    parser.add_argument("--again", type=Path, help="judge the members of a DLedger group that was kept, as it was")
    options = parser.parse_args()
    if options.again is not None:
        with kept(options.release, options.again) as group:
            story: list[str] = []
            differs = judge(group, Life(), story, advised=options.advised)
            print("\n".join([*story, *(f"  DIFFERS: {line}" for line in differs)]))
        return 1 if differs else 0
    failed = 0
    for seed in range(options.seed, options.seed + options.rounds):
        with made(options.release, options.kind, seed, parted=options.parted) as (group, life, folder):
            report = [*life.story]
            if options.damage:
                report.append(damage(group, Random(seed)))
            shutil.copytree(folder / "group", folder / "kept")
            try:
                wrong = judge(group, life, report, advised=options.advised)
            except AssertionError as err:
                wrong = [str(err)[:3000]]
            print(f"{options.release} {options.kind} seed {seed}: {'; '.join(report)}")
            for line in wrong:
                print(f"  DIFFERS: {line}")
            sys.stdout.flush()
            if wrong and options.keep:
                shutil.copytree(folder, options.keep / f"{options.release}-{options.kind}-{seed}")
            failed += bool(wrong)
    print(f"{options.rounds} rounds, {failed} differ")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
