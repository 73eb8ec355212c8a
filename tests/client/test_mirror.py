"""The command mirror, against our own broker, with kills."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rmqtool.cli.live.copying.positions import FILE, MirrorPositions
from rmqtool.client.copying.steps import ORIGIN
from rmqtool.errors import CorruptFile, UnreadableStore
from rmqtool.services.open_store.broker_state import BrokerState
from rmqtool.services.open_store.store import Store
from rmqtool.testing import TestBroker, broker
from tests.amounts import by_turns
from tests.cli.running import RMQTOOL, ROOT, rmqtool
from tests.client.peers import serving, unreadable
from tests.client.test_replay import CONF, bodies, made, messages
from tests.client.test_replay_away import KnownRoutes, name_server
from tests.model.neighbours import free_port

SMALL = "".join(f"{name}={value}\n" for name, value in CONF.items())


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestBroker]:
    with broker(made(tmp_path_factory.mktemp("origin") / "store", "Orders", 2000)) as running:
        result = rmqtool("replay", running.store, "--namesrv", running.namesrv, "--to", "Second", "--limit", 50)
        assert result.code == 0, result.err
        yield running


@pytest.fixture
def conf(tmp_path: Path) -> str:
    path = tmp_path / "broker.conf"
    path.write_text(SMALL)
    return str(path)


def mirror(served: TestBroker, *args: object) -> tuple[int, list[dict[str, Any]], str]:
    result = rmqtool("mirror", "--namesrv", served.namesrv, *args, "-o", "ndjson")
    return result.code, [json.loads(line) for line in result.out.splitlines()], result.err


def send(served: TestBroker, topic: str, lines: list[str], tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_text("\n".join(lines))
    result = rmqtool("send", "--namesrv", served.namesrv, topic, path, "--lines")
    assert result.code == 0, result.err


def test_topics_are_copied_once_and_gone_on_with(served: TestBroker, tmp_path: Path, conf: str) -> None:
    store = tmp_path / "copy"
    send(served, "Grows", [str(n) for n in range(40)], tmp_path)
    code, rows, text = mirror(served, "Grows", "Second", store, "--broker-conf", conf)
    assert code == 0, text
    assert sum(row["messages"] for row in rows) == 90
    for topic in ("Grows", "Second"):
        theirs = messages(served.store, topic)
        ours = messages(str(store), topic)
        assert bodies(ours) == bodies(theirs)
        by_place = {(row["queueId"], row["queueOffset"]): row for row in theirs}
        for row in ours:
            _mirror, name, queue_id, offset = row["properties"][ORIGIN].split(":")
            origin = by_place[int(queue_id), int(offset)]
            assert (name, row["queueId"]) == ("broker-a", origin["queueId"])
            assert [row[field] for field in ("body", "msgId", "tags", "keys", "bornTimestamp", "bornHost", "flag")] == [
                origin[field] for field in ("body", "msgId", "tags", "keys", "bornTimestamp", "bornHost", "flag")
            ]
    assert rmqtool("check", store, "--broker-conf", conf).code == 0
    send(served, "Grows", ["40", "41", "42"], tmp_path)
    assert sum(row["messages"] for row in mirror(served, "Grows", store, "--broker-conf", conf, "--limit", 2)[1]) == 2
    assert sum(row["messages"] for row in mirror(served, "Grows", store, "--broker-conf", conf)[1]) == 1
    assert bodies(messages(str(store), "Grows")) == bodies(messages(served.store, "Grows"))
    # what is behind the file is told by the messages themselves
    path = store / FILE
    kept = json.loads(path.read_text())
    kept["log"] = {"next": 0, "last": -1, "last_end": 0, "last_crc": 0}
    kept["positions"] = [[*queue, 0] for *queue, _offset in kept["positions"]]
    path.write_text(json.dumps(kept))
    assert sum(row["messages"] for row in mirror(served, "Grows", store, "--broker-conf", conf)[1]) == 0


def heeds(pid: int) -> bool:
    """Whether a process already handles SIGTERM."""
    caught = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("SigCgt"))
    return bool(int(caught.split()[1], 16) >> signal.SIGTERM - 1 & 1)


def test_killed_again_and_again_it_copies_each_once(tmp_path: Path, conf: str) -> None:
    with broker(tmp_path / "origin", settings=CONF) as running_broker:
        send(running_broker, "Many", [str(n) for n in range(200)], tmp_path)
        store = tmp_path / "copy"
        args = [
            *RMQTOOL,
            "mirror",
            "--namesrv",
            running_broker.namesrv,
            "Many",
            str(store),
            "--broker-conf",
            conf,
            "--follow",
        ]
        for round_ in range(3):
            with subprocess.Popen(args, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as running:
                until = time.monotonic() + 60
                while not (store / FILE).exists() and time.monotonic() < until:
                    time.sleep(0.02)
                send(running_broker, "Many", [str(n) for n in range(200 + 100 * round_, 300 + 100 * round_)], tmp_path)
                while len(messages(str(store), "Many")) < 100 * (round_ + 1) and time.monotonic() < until:
                    time.sleep(0.05)
                running.send_signal(signal.SIGKILL)
        with subprocess.Popen(args, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as last:
            while not (len(messages(str(store), "Many")) >= 500 and heeds(last.pid)) and time.monotonic() < until + 60:
                time.sleep(0.1)
            last.send_signal(signal.SIGTERM)
            _out, stderr = last.communicate(timeout=60)
        assert last.returncode == 0, stderr
        assert bodies(messages(str(store), "Many")) == bodies(messages(running_broker.store, "Many"))
        assert rmqtool("check", store, "--broker-conf", conf).code == 0


def test_a_log_that_was_cut_and_has_grown_again_is_not_gone_on_with(
    served: TestBroker, tmp_path: Path, conf: str
) -> None:
    """The file counts the cut messages as copied: they would never be copied again."""
    store, sized = tmp_path / "copy", ("--broker-conf", conf)
    assert mirror(served, "Second", store, *sized)[0] == 0
    copied = messages(str(store), "Second")
    middle = sorted(row["physicalOffset"] for row in copied)[25]
    assert rmqtool("truncate", store, middle, "--yes", *sized).code == 0
    code, _rows, stderr = mirror(served, "Second", store, *sized)
    assert code == 4
    assert "mirror into another store" in stderr
    other = "".join(json.dumps({"topic": "Other", "body": "x" * 500}) + "\n" for _ in range(200))
    (tmp_path / "other").write_text(other)
    assert rmqtool("append", store, tmp_path / "other", *sized).code == 0
    code, _rows, stderr = mirror(served, "Second", store, *sized)
    assert code == 4
    assert "is not there any more" in stderr
    assert "mirror into another store" in stderr


def known(path: Path, topic: str, count: int) -> Path:
    """A store with messages of a registered topic."""
    made(path, topic, count)
    with Store(path, write=True, broker_conf=CONF) as store:
        state = BrokerState(store, lambda _text: None)
        state.ensure_topic(topic, 4)
        state.persist()
    return path


@by_turns(2)
@pytest.mark.parametrize("grown", [10, 120], ids=["shorter", "longer"])
@pytest.mark.parametrize("saved", [True, False, None], ids=["as it was saved", "behind a kill", "of an older mirror"])
def test_a_topic_that_was_made_again_is_another(tmp_path: Path, conf: str, grown: int, saved: bool | None) -> None:
    """Its offsets are unrelated to what was copied: messages below the mirror's position would never be copied."""
    store, sized = tmp_path / "copy", ("--broker-conf", conf)
    with broker(known(tmp_path / "origin", "Again", 80)) as running:
        assert mirror(running, "Again", store, *sized)[0] == 0
        assert mirror(running, "Again", store, *sized)[0] == 0
    path = store / FILE
    kept = json.loads(path.read_text())
    assert all(len(row) == 6 for row in kept["positions"])
    if saved is None:
        kept |= {"version": 2, "positions": [row[:4] for row in kept["positions"]]}
    elif not saved:
        kept["log"] = {"next": 0, "last": -1, "last_end": 0, "last_crc": 0}
        kept["positions"] = [[*row[:3], 0] for row in kept["positions"]]
    path.write_text(json.dumps(kept))
    with broker(known(tmp_path / "anew", "Again", grown)) as running:
        code, _rows, stderr = mirror(running, "Again", store, *sized)
    assert code == 3, stderr
    assert "mirror it into another store" in stderr
    assert len(messages(str(store), "Again")) == 80
    with broker(tmp_path / "origin") as running:  # the old one is still gone on with
        assert mirror(running, "Again", store, *sized)[0] == 0
    assert len(messages(str(store), "Again")) == 80


def test_a_topic_that_is_made_again_while_it_is_followed(tmp_path: Path, conf: str) -> None:
    store, ports = tmp_path / "copy", [str(free_port()), str(free_port())]

    def serve(path: Path) -> "subprocess.Popen[str]":
        args = [*RMQTOOL, "serve", str(path), "--listen", f"127.0.0.1:{ports[0]}"]
        running = subprocess.Popen(
            [*args, "--namesrv-listen", f"127.0.0.1:{ports[1]}"], cwd=ROOT, stdout=subprocess.PIPE, text=True
        )
        assert running.stdout is not None
        assert running.stdout.readline().startswith("ready")
        return running

    args = [*RMQTOOL, "mirror", "--namesrv", f"127.0.0.1:{ports[1]}", "Again", str(store), "--broker-conf", conf, "-f"]
    with serve(known(tmp_path / "origin", "Again", 40)) as first:  # noqa: SIM117
        with subprocess.Popen(args, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
            until = time.monotonic() + 60
            while not store.exists() or len(messages(str(store), "Again")) < 40:
                assert time.monotonic() < until
                time.sleep(0.1)
            first.terminate()
            first.communicate(timeout=60)
            with serve(known(tmp_path / "anew", "Again", 100)) as second:
                _out, stderr = running.communicate(timeout=60)
                second.terminate()
                second.communicate(timeout=60)
    assert running.returncode == 3, stderr
    assert "mirror it into another store" in stderr
    assert len(messages(str(store), "Again")) == 40


def test_a_queue_that_cannot_be_read_now_is_told(tmp_path: Path, conf: str) -> None:
    store, told = tmp_path / "copy", KnownRoutes()
    with broker(known(tmp_path / "origin", "Wide", 40)) as running, name_server(told) as namesrv:
        told.routes = {"Wide": {0: running.address}}
        args = ("mirror", "--namesrv", namesrv, "Wide", store, "--broker-conf", conf)
        assert rmqtool(*args).code == 0
        told.queues = 2
        result = rmqtool(*args)
        assert result.code == 1, result.err
        assert "queue 3 of broker-a cannot be read now" in result.err


def test_a_topic_that_has_more_queues_than_before(tmp_path: Path, conf: str) -> None:
    with broker(tmp_path / "origin", settings=CONF) as running:
        send(running, "Wide", [str(n) for n in range(10)], tmp_path)
        store = tmp_path / "copy"
        assert mirror(running, "Wide", store, "--broker-conf", conf)[0] == 0
        topics = store / "config" / "topics.json"
        told = json.loads(topics.read_text())
        queues = told["topicConfigTable"]["Wide"]["readQueueNums"]
        told["topicConfigTable"]["Wide"] |= {"readQueueNums": 1, "writeQueueNums": 1}  # as it was then
        topics.write_text(json.dumps(told))
        assert mirror(running, "Wide", store, "--broker-conf", conf)[0] == 0
        shown = json.loads(topics.read_text())["topicConfigTable"]["Wide"]
        assert shown["readQueueNums"] == shown["writeQueueNums"] == queues > 1


@pytest.mark.parametrize(
    "wrong",
    [
        {"log": 5},
        {"log": {"next": float("inf"), "last": -1, "last_end": 0, "last_crc": 0}},
        {"log": {"next": -5, "last": -1, "last_end": 0, "last_crc": 0}},
        {"mirror": "a:b"},
        {"mirror": 5},
        {"version": 1},
        {"positions": [["Second", "broker-a", 0, float("inf")]]},
        {"positions": [["Second", "broker-a", -1, 0]]},
        {"positions": [["Second", "broker-a", 0, True]]},
        {"positions": [["Second", "broker-a", 0]]},
        {"positions": 5},
    ],
)
def test_positions_that_no_mirror_has_written(wrong: dict[str, Any], tmp_path: Path, conf: str) -> None:
    store = tmp_path / "copy"
    with Store.create(store, broker_conf=conf) as new:
        MirrorPositions(new).save()
    path = store / FILE
    path.write_text(json.dumps(json.loads(path.read_text()) | wrong))
    with (
        Store(store, write=True, broker_conf=conf) as again,
        pytest.raises(CorruptFile, match="not the positions of a mirror"),
    ):
        MirrorPositions(again)


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: os.symlink(path.name, path)])
def test_positions_that_are_no_file(make: Callable[[Path], None], tmp_path: Path, conf: str) -> None:
    store = tmp_path / "copy"
    Store.create(store, broker_conf=conf).close()
    (store / FILE).unlink(missing_ok=True)
    make(store / FILE)
    with Store(store, write=True, broker_conf=conf) as again, pytest.raises(UnreadableStore, match=FILE):
        MirrorPositions(again)


def test_a_store_with_other_messages_of_the_topic_is_left_alone(served: TestBroker, tmp_path: Path) -> None:
    store = made(tmp_path / "other", "Second", 3)
    (tmp_path / "c").write_text(SMALL)
    code, rows, text = mirror(served, "Second", store, "--broker-conf", tmp_path / "c")
    assert (code, rows) == (4, [])
    assert "were not mirrored" in text


@pytest.mark.parametrize(
    ("args", "code", "part"),
    [
        (["--namesrv", "nonsense", "T", "NEW"], 2, "HOST:PORT"),
        (["--namesrv", "127.0.0.1:1", "T", "NEW"], 3, "Connection refused"),
        (["--namesrv", "127.0.0.1:1", "NEW"], 2, "give one or more topics"),
        (["--namesrv", "127.0.0.1:1", "bad topic", "NEW"], 2, "illegal characters"),
    ],
)
def test_bad_options_are_one_line(tmp_path: Path, args: list[str], code: int, part: str) -> None:
    result = rmqtool("mirror", *[tmp_path / "new" if word == "NEW" else word for word in args])
    assert (result.code, result.out) == (code, "")
    assert result.err.count("\n") == 1
    assert part in result.err
    assert not (tmp_path / "new").exists()


def test_a_topic_that_may_not_be_read_is_not_an_empty_one(tmp_path: Path, conf: str) -> None:
    """Being unable to copy is not the same as having nothing to copy."""
    with serving(unreadable("T")) as address:
        result = rmqtool("mirror", "--namesrv", address, "T", tmp_path / "copy", "--broker-conf", conf)
    assert result.code == 3, result
    assert "T: cannot be read: its permission on a forbids it" in result.err
