"""The official Python client for gRPC: sends messages of every kind, or drains a topic; prints JSON."""

import json
import os
import sys
import tempfile
import time
from typing import Any

os.environ["HOME"] = tempfile.mkdtemp(prefix="grpc-client-")  # it writes its log there
from rocketmq import (
    ClientConfiguration,
    Credentials,
    FilterExpression,
    Message,
    Producer,
    SimpleConsumer,
    TransactionChecker,
    TransactionResolution,
)


class Checker(TransactionChecker):
    """Commits what it is asked about."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def check(self, message: Message) -> TransactionResolution:
        """Called when the broker asks about a transaction."""
        self.asked.append(message.body.decode())
        return TransactionResolution.COMMIT


def message(topic: str, body: str, **more: Any) -> Message:
    made = Message()
    made.topic, made.body = topic, body.encode()
    for name, value in more.items():
        setattr(made, name, value)
    return made


def receive(consumer: SimpleConsumer, wanted: int, seconds: float) -> list[tuple[str, str, str, float]]:
    """Receive and acknowledge messages until there are enough, or time is up."""
    got: list[tuple[str, str, str, float]] = []
    end = time.time() + seconds
    while len(got) < wanted and time.time() < end:
        try:
            messages = consumer.receive(32, 20)
        except Exception:  # the first comes before the proxy knows the client's settings
            time.sleep(0.5)
            continue
        for each in messages or []:
            got.append((each.topic, each.body.decode("utf-8", "replace"), each.message_id, time.time()))
            consumer.ack(each)
    return got


def consumer_of(endpoint: str, group: str, *topics: str) -> SimpleConsumer:
    consumer = SimpleConsumer(ClientConfiguration(endpoint, Credentials()), group)
    consumer.startup()
    for topic in topics:
        consumer.subscribe(topic, FilterExpression("*"))
    return consumer


def send(endpoint: str, count: int) -> dict[str, Any]:
    """Send messages of every kind, and receive them."""
    checker = Checker()
    topics = ("Plain", "Fifo", "Late", "Tx")
    producer = Producer(ClientConfiguration(endpoint, Credentials()), topics, checker=checker)
    producer.startup()
    for number in range(count):
        producer.send(message("Plain", str(number), tag="t", keys=f"k{number}"))
        producer.send(message("Fifo", f"{number % 3} {number}", message_group=f"g{number % 3}"))
    due = int(time.time()) + 3
    producer.send(message("Late", "late", delivery_timestamp=due))
    for body in ("committed", "rolled back", "undecided"):
        transaction = producer.begin_transaction()
        producer.send(message("Tx", body), transaction)
        if body == "committed":
            transaction.commit()
        elif body == "rolled back":
            transaction.rollback()
    consumer = consumer_of(endpoint, "grpc-group", *topics)
    got = receive(consumer, 2 * count + 3, 60)
    consumer.shutdown()
    producer.shutdown()
    by_topic = {topic: [each[1] for each in got if each[0] == topic] for topic in topics}
    groups = [[body for body in by_topic["Fifo"] if body[0] == group] for group in "012"]
    return {
        "plain": sorted(map(int, by_topic["Plain"])) == list(range(count)),
        "fifo": all(group == sorted(group, key=lambda body: int(body[2:])) for group in groups),
        "fifoCount": len(by_topic["Fifo"]),
        "late": [round(each[3] - due) for each in got if each[0] == "Late"],
        "tx": sorted(by_topic["Tx"]),
        "asked": checker.asked,
    }


def drain(endpoint: str, group: str, topic: str, count: int) -> list[str]:
    """Receive all messages of a topic."""
    consumer = consumer_of(endpoint, group, topic)
    got = receive(consumer, count, 60)
    consumer.shutdown()
    return sorted(each[2] for each in got)


def main() -> None:
    """Print the result of a scenario."""
    what, endpoint, *others = sys.argv[1:]
    if what == "send":
        print(json.dumps(send(endpoint, int(others[0]))))
    else:
        print(json.dumps(drain(endpoint, *others[:2], int(others[2]))))


main()
