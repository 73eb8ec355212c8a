"""A served store with real clients for a long time: ``python -m tests.interop.soak --minutes 20``.

Producers send, messages wait on delay levels, transactions are committed and rolled back, consumers join, fail, leave
and return, and the server is killed or stopped at random and restarted on its ports. With 5.x, messages also wait in
the timer, some are recalled, and one topic is popped. Every acknowledged message must arrive, in queue order for
orderly consumers; rolled-back and recalled ones must not. In the end a real broker takes over the store and delivers
all of it to a new group.
"""

import argparse
import base64
import json
import random
import signal
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.interop.broker import SMALL_FILES, VERSIONS, Broker
from tests.interop.hostile import memory
from tests.interop.serving import Serving

_CONF = {
    **SMALL_FILES,
    "transactionCheckInterval": 1000,
    "transactionTimeOut": 1000,
    "transactionCheckMax": 10_000,  # a producer is known to a new server after up to 30 s; checks do not wait
    "brokerFastFailureEnable": "false",
}
_CONF_5 = {"timerWheelEnable": "true", "recallMessageEnable": "true", "mappedFileSizeTimerLog": 520_000}
_TOPICS = ("Load", "Ordered", "Later", "Paid")
_TOPICS_5 = ("Timed", "Popped")
_INVISIBLE = 10_000  # ms
_PATIENCE = 240  # s, for what is on its way: the longest retry that comes about here is one of a few minutes
_ROUND = 400  # messages
Tell = Callable[[str], None]


@dataclass
class Account:
    """Messages sent and received.

    Attributes:
        wanted: keys of acknowledged messages by topic.
        unwanted: keys of rolled-back transactions and of recalled messages.
        recalled: number of recalled messages.
        got: how often each key was received, by group.
        last: queue offset of the last message that an orderly group took from a queue; disordered: keys received before
            earlier ones of their queue.
        kills, ends: counts of the server's kills and stops. memory: largest memory of its processes, KB.
    """

    wanted: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    unwanted: set[str] = field(default_factory=set)
    got: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    last: dict[tuple[str, int], int] = field(default_factory=dict)
    disordered: list[str] = field(default_factory=list)
    recalled: int = 0
    kills: int = 0
    ends: int = 0
    memory: int = 0

    def take(self, rows: list[dict[str, Any]]) -> None:
        """Add messages that consumers got, in order."""
        for row in rows:
            key, group = row["keys"], row["group"]
            new = key not in self.got[group]
            self.got[group][key] += 1
            if group == "Ordered":
                queue = (group, row["queueId"])
                # what comes again goes back to where a consumer begins anew; what is new may not
                if new and row["queueOffset"] < self.last.get(queue, -1):
                    self.disordered.append(key)
                self.last[queue] = max(self.last.get(queue, -1), row["queueOffset"])

    def missing(self, suffix: str = "") -> dict[str, set[str]]:
        """Missing keys by topic; groups are named like their topics."""
        left = {topic: keys - self.got[topic + suffix].keys() for topic, keys in self.wanted.items()}
        return {topic: keys for topic, keys in left.items() if keys}

    def wrong(self) -> list[str]:
        """Violations."""
        came = self.unwanted & {key for group in self.got.values() for key in group}
        result = [f"{len(came)} messages came that were taken back: {sorted(came)[:5]}"] if came else []
        if self.disordered:
            result.append(f"{len(self.disordered)} messages came out of order: {self.disordered[:5]}")
        return result

    def told(self) -> str:
        """The state in one line."""
        again = sum(times - 1 for group in self.got.values() for times in group.values())
        sent = sum(map(len, self.wanted.values()))
        return (
            f"{sent} acknowledged, {sum(map(len, self.missing().values()))} missing, {again} came again, "
            f"{len(self.unwanted) - self.recalled} rolled back, {self.recalled} called back, "
            f"{self.kills} kills, {self.ends} orderly ends, {self.memory >> 10} MB"
        )


class Soak:
    """One run.

    Args:
        broker: real clients, and at the end a real broker.
        folder: directory for the store and its settings.
    """

    def __init__(self, broker: Broker, folder: Path, seed: int, tell: Tell) -> None:
        self.broker, self.store, self.account = broker, folder / "store", Account()
        self._random, self._tell = random.Random(seed), tell
        self._conf = folder / "broker.conf"
        newer = broker.engine == "5.3"
        self._topics = _TOPICS + _TOPICS_5 if newer else _TOPICS
        self._settings = _CONF | _CONF_5 if newer else _CONF
        self._conf.write_text("".join(f"{name}={value}\n" for name, value in self._settings.items()))
        self._listen, self._namesrv = "127.0.0.1:0", "127.0.0.1:0"
        self._consumers: list[tuple[str, str]] = []  # topic, instance
        self._number = 0

    def run(self, seconds: float) -> None:
        """Run rounds until the time is over, then until everything has arrived, then the real broker."""
        end = time.monotonic() + seconds
        first = True
        while first or time.monotonic() < end:
            with self._serving(first) as serving:
                if first:
                    self._begin(serving)
                    first = False
                until = time.monotonic() + self._random.uniform(5, 20)
                while time.monotonic() < until:
                    self._work()
                self._stop(serving)
            self._tell(self.account.told())
        with self._serving(first) as serving:
            self._until(lambda: not self.account.missing())
            self.account.memory = max(self.account.memory, memory(serving.process.pid))
            self.broker.stop()
            assert serving.end(signal.SIGTERM)[0] == 0
        self._hand_over()

    def _serving(self, create: bool) -> Serving:
        more = ["--create", "--engine", self.broker.engine] if create else []
        serving = Serving(
            self.store, "--broker-conf", str(self._conf), *more, listen=self._listen, namesrv=self._namesrv
        )
        self._listen, self._namesrv = serving.broker, serving.namesrv
        # nobody reads its log until it ends, and a full pipe would stop it
        assert serving.process.stderr is not None
        threading.Thread(target=serving.process.stderr.read, daemon=True).start()
        return serving

    def _begin(self, serving: Serving) -> None:
        self.broker.connect(serving.namesrv, serving.broker)
        for topic in self._topics:
            fields = {
                "topic": topic, "defaultTopic": "TBW102", "readQueueNums": "4", "writeQueueNums": "4", "perm": "6",
                "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false",
            }  # fmt: skip
            assert self.broker.ask("request", code=17, fields=fields)["code"] == 0
            if topic == "Popped":
                mode = {"topic": topic, "consumerGroup": topic, "mode": "POP", "popShareQueueNum": 0}
                body = base64.b64encode(json.dumps(mode).encode()).decode()
                assert self.broker.ask("request", code=401, fields={}, base64=body)["code"] == 0
            self._join(topic)

    def _stop(self, serving: Serving) -> None:
        self.account.memory = max(self.account.memory, memory(serving.process.pid))
        if self._random.random() < 0.7:
            killer = threading.Timer(self._random.uniform(0, 0.3), serving.process.kill)
            killer.start()
            self._send(_ROUND)
            killer.join()
            self.account.kills += 1
        else:
            serving.process.send_signal(signal.SIGTERM)
            assert serving.process.wait(60) == 0
            self.account.ends += 1

    def _join(self, topic: str) -> None:
        self._number += 1
        instance = f"c{self._number}"
        more: dict[str, Any] = {"orderly": True} if topic == "Ordered" else {}
        if topic == "Popped":
            more = {"pop": _INVISIBLE}
        failing = topic == "Load" and self._random.random() < 0.3
        self.broker.ask(
            "consume", group=topic, topic=topic, failures=int(failing), most=16, level=1, instance=instance, **more
        )
        self._consumers.append((topic, instance))

    def _leave(self) -> None:
        leaving = self._random.choice(self._consumers)
        if sum(topic == leaving[0] for topic, _ in self._consumers) > 1:
            self._consumers.remove(leaving)
            self.broker.ask("leave", instance=leaving[1])

    def _work(self) -> None:
        match self._random.randrange(8 if self._topics is _TOPICS else 9):
            case 0:
                if len(self._consumers) < 3 * len(self._topics):
                    self._join(self._random.choice(self._topics))
            case 1:
                self._leave()
            case 2:
                self._tries(lambda key: self._sent("Later", key, level=self._random.randint(1, 3)))
            case 3:
                self._tries(self._pay)
            case 8:
                self._tries(self._wait)
            case _:
                self._send(_ROUND)
        self.account.take(self.broker.ask("take"))

    def _key(self) -> str:
        self._number += 1
        return f"k{self._number}"

    def _tries(self, send: Callable[[str], None]) -> None:
        for _ in range(10):
            send(self._key())

    def _sent(self, topic: str, key: str, **more: Any) -> None:
        if self.broker.ask("send", topic=topic, keys=key, **more)["status"] == "SEND_OK":
            self.account.wanted[topic].add(key)

    def _pay(self, key: str) -> None:
        answer = self._random.choice(("commit", "rollback", "unknown"))
        checked = self._random.choice(("commit", "rollback")) if answer == "unknown" else answer
        # a group for each: what a producer says when it is asked later holds for all of its group
        told = self.broker.ask(
            "sendHalf", group=f"pay-{checked}", topic="Paid", keys=key, answer=answer, checked=checked
        )
        if told["status"] == "SEND_OK":
            if checked == "commit":
                self.account.wanted["Paid"].add(key)
            else:
                self.account.unwanted.add(key)

    def _wait(self, key: str) -> None:
        """Send a timer message; some are recalled at once."""
        delay = self._random.randint(1_000, 20_000)
        told = self.broker.ask("send", topic="Timed", keys=key, properties={"TIMER_DELAY_MS": str(delay)})
        if told["status"] != "SEND_OK":
            return
        if delay < 5_000 or self._random.random() < 0.7:
            self.account.wanted["Timed"].add(key)
        else:
            self.broker.ask("recall", topic="Timed", handle=told["handle"])
            self.account.unwanted.add(key)
            self.account.recalled += 1

    def _send(self, count: int) -> None:
        topic = self._random.choice(("Load", "Load", "Ordered", *self._topics[5:]))
        sent = self.broker.ask("sendMany", topic=topic, count=count, threads=4, how="sync", prefix=self._key() + "-")
        self.account.wanted[topic] |= {row["keys"] for row in sent if row.get("status") == "SEND_OK"}

    def _until(self, so: Callable[[], bool]) -> None:
        for _ in range(_PATIENCE):
            self.account.take(self.broker.ask("take"))
            if so():
                return
            time.sleep(1)

    def _hand_over(self) -> None:
        """Let a real broker deliver everything again to new groups."""
        self.broker.boot(self.store, self._settings)
        for topic in self._topics:
            self.broker.ask("consume", group=f"{topic}-again", topic=topic, failures=0, most=1, level=0)
        self._until(lambda: not self.account.missing("-again"))
        self.broker.stop()


def soak(version: str, seconds: float, seed: int, tell: Tell = print) -> list[str]:
    """Run with the clients of a release; returns what went wrong."""
    with tempfile.TemporaryDirectory(prefix="rmqtool-soak-") as made, Broker(version) as broker:
        soaking = Soak(broker, Path(made), seed, tell)
        soaking.run(seconds)
        account = soaking.account
    tell(f"{version}: {account.told()}")
    lost = {"ours": account.missing(), "the real broker after us": account.missing("-again")}
    result = [
        f"{who} lost of {topic}: {sorted(keys)[:5]}" for who, left in lost.items() for topic, keys in left.items()
    ]
    return result + account.wrong()


def main() -> int:
    """Run and print the result."""
    options = argparse.ArgumentParser(prog="python -m tests.interop.soak", description=__doc__)
    options.add_argument("--minutes", type=float, default=20)
    options.add_argument("--release", choices=VERSIONS, help="of the clients; else both, one after the other")
    options.add_argument("--seed", type=int, default=1)
    chosen = options.parse_args()
    failed = 0
    for version in [chosen.release] if chosen.release else VERSIONS:
        for line in soak(version, chosen.minutes * 60, chosen.seed):
            failed += 1
            print(f"WRONG: {line}")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
