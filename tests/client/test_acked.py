"""consume as a member of a group: only what stdout has accepted is committed."""

import asyncio
import json
import os
import random
import signal
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from rmqtool.testing import TestBroker
from tests.cli.running import RMQTOOL, ROOT, Result, process, rmqtool
from tests.client.test_consuming import committed, fill


def consume(served: TestBroker, topic: str, group: str, *args: object, **options: Any) -> Result:
    return (process if options else rmqtool)(
        "consume", "--namesrv", served.namesrv, topic, "--group", group, "--ack", "-o", "ndjson", *args, **options
    )


def places(text: str) -> list[tuple[int, int]]:
    rows = [json.loads(line) for line in text.splitlines()]
    return [(row["queueId"], row["queueOffset"]) for row in rows]


def complete(data: bytes) -> list[tuple[int, int]]:
    """The complete lines."""
    return places(data[: data.rfind(b"\n") + 1].decode())


def kept(served: TestBroker, group: str, topic: str) -> int:
    return asyncio.run(committed(served, group, topic))


def test_what_is_written_is_committed(served: TestBroker) -> None:
    fill(served, "Acked", 200)
    looked = rmqtool("consume", "--namesrv", served.namesrv, "Acked", "--group", "acked", "-o", "ndjson")
    assert (looked.code, len(places(looked.out))) == (0, 200)
    assert kept(served, "acked", "Acked") == 0
    first = consume(served, "Acked", "acked", "--limit", 7)
    assert first.code == 0, first.err
    assert len(places(first.out)) == kept(served, "acked", "Acked") == 7
    looked = rmqtool("consume", "--namesrv", served.namesrv, "Acked", "--group", "acked", "-o", "ndjson")
    rest = consume(served, "Acked", "acked")
    assert rest.code == 0, rest.err
    assert sorted(places(rest.out)) == sorted(places(looked.out))
    assert sorted(places(first.out) + places(rest.out)) == [(queue, at) for queue in range(4) for at in range(50)]
    assert kept(served, "acked", "Acked") == 200
    again = consume(served, "Acked", "acked")
    assert (again.code, again.out) == (1, "")


def test_in_order_as_a_table_and_of_some_tags(served: TestBroker) -> None:
    fill(served, "InTurn", 120)
    done = consume(served, "InTurn", "in-turn", "--orderly", "--tag", "odd")
    assert done.code == 0, done.err
    for queue in (1, 3):
        assert [at for q, at in places(done.out) if q == queue] == list(range(30))
    assert kept(served, "in-turn", "InTurn") == 120
    table = rmqtool("consume", "--namesrv", served.namesrv, "InTurn", "-g", "tabled", "--ack", "--from", "earliest")
    assert table.code == 0, table.err
    assert table.out.count("InTurn") == kept(served, "tabled", "InTurn") == 120


def test_what_cannot_be_written_is_not_committed(served: TestBroker) -> None:
    fill(served, "Unread", 40)
    with open("/dev/full", "wb") as full:
        done = consume(served, "Unread", "unread", capture_output=False, stdout=full, stderr=subprocess.PIPE)
    assert done.code != 0
    assert "No space left" in done.err
    read, write = os.pipe()
    os.close(read)
    done = consume(served, "Unread", "unread", capture_output=False, stdout=write, stderr=subprocess.PIPE)
    os.close(write)
    assert "Traceback" not in done.err
    assert kept(served, "unread", "Unread") == 0
    assert len(places(consume(served, "Unread", "unread").out)) == 40


@pytest.mark.parametrize("orderly", [False, True], ids=["any order", "in order"])
def test_signals_and_kills_lose_nothing(served: TestBroker, tmp_path: Path, orderly: bool) -> None:
    topic, group = f"Killed{orderly}", f"killed-{orderly}"
    count = 1200
    fill(served, topic, count)
    chance = random.Random(7)
    seen: set[tuple[int, int]] = set()
    command = [*RMQTOOL, "consume", "--namesrv", served.namesrv, topic, "-g", group, "--ack", "-f", "-o", "ndjson"]
    command += ["--from", "earliest", *(["--orderly"] if orderly else [])]
    interrupted = 0
    for turn in range(1 if orderly else 3):
        running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT)
        assert running.stdout is not None
        whole, enough = b"", chance.randint(1, 200_000)
        while len(whole) < enough and not seen | set(complete(whole)) >= _all(count):
            whole += os.read(running.stdout.fileno(), 1 << 16)
        graceful = orderly or turn % 2
        running.send_signal(signal.SIGINT if graceful else signal.SIGKILL)
        while more := os.read(running.stdout.fileno(), 1 << 16):
            whole += more
        _, err = running.communicate(timeout=60)
        got = complete(whole)
        if graceful:
            assert running.returncode == 0, err
            interrupted += 1
        seen |= set(got)
    # what is left, with nothing in between
    while not seen >= _all(count):
        done = consume(served, topic, group, *(["--orderly"] if orderly else []))
        assert done.code == 0, done.err
        seen |= set(places(done.out))
    assert interrupted
    assert kept(served, group, topic) == count


def _all(count: int) -> set[tuple[int, int]]:
    return {(queue, at) for queue in range(4) for at in range(count // 4)}


def test_two_processes_share_the_queues(served: TestBroker) -> None:
    fill(served, "Halves", 40)
    command = [
        *RMQTOOL,
        "consume",
        "--namesrv",
        served.namesrv,
        "Halves",
        "-g",
        "halves",
        "--ack",
        "-f",
        "-o",
        "ndjson",
    ]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT) for _ in range(2)]
    lines: list[list[str]] = [[], []]

    def read(running: subprocess.Popen[bytes], to: list[str]) -> None:
        assert running.stdout is not None
        to.extend(line.decode() for line in running.stdout)

    threads = [threading.Thread(target=read, args=pair) for pair in zip(both, lines, strict=True)]
    for thread in threads:
        thread.start()
    at, deadline = 40, time.monotonic() + 180
    while not all(any(json.loads(line)["queueOffset"] >= 10 for line in part) for part in lines):
        assert time.monotonic() < deadline
        fill(served, "Halves", 4, at)
        at += 4
        time.sleep(0.1)
    for running in both:
        running.send_signal(signal.SIGTERM)
    for running, thread in zip(both, threads, strict=True):
        thread.join(60)
        running.communicate(timeout=60)
        assert running.returncode == 0
    rest = consume(served, "Halves", "halves")
    result = [place for part in lines for place in places("".join(part))] + places(rest.out)
    assert set(result) == {(queue, offset) for queue in range(4) for offset in range(at // 4)}


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (["--ack"], "--group"),
        (["--group", "g", "--orderly"], "--ack"),
        (["--group", "a b", "--ack"], "--group"),
        (["--group", "g", "--ack", "--from", "17"], "--from"),
        (["--group", "g", "--from", "earliest"], "--from"),
        (["--group", "g", "--ack", "--sql", "a > 1", "--tag", "b"], "--sql"),
    ],
)
def test_what_does_not_go_together_is_refused(served: TestBroker, args: list[str], text: str) -> None:
    result = rmqtool("consume", "--namesrv", served.namesrv, "T", *args)
    assert result.code == 2
    assert result.err.startswith("error: ")
    assert text in result.err


def test_conditions_select_what_is_shown(served: TestBroker, tmp_path: Path) -> None:
    rows = [
        {"topic": "Chosen", "body": str(number), "properties": {"region": "eu" if number % 2 else "us"}}
        for number in range(6)
    ]
    (tmp_path / "rows").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert rmqtool("send", "--namesrv", served.namesrv, "Chosen", tmp_path / "rows").code == 0
    for args, expected in (
        (("--where", "bodyLength = 1 AND region = 'eu'"), {"1", "3", "5"}),
        (("--property", "region=us"), {"0", "2", "4"}),
    ):
        result = rmqtool("consume", "--namesrv", served.namesrv, "Chosen", "-o", "ndjson", *args)
        assert {json.loads(line)["body"] for line in result.out.splitlines()} == expected
    nothing = rmqtool("consume", "--namesrv", served.namesrv, "Chosen", "--where", "misspelt = 1")
    assert nothing.code == 1
    assert "no message that was looked at has misspelt" in nothing.err
    acking = rmqtool("consume", "--namesrv", served.namesrv, "Chosen", "--where", "a = 1", "--group", "g", "--ack")
    assert acking.code == 2
