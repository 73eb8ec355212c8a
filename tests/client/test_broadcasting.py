"""Broadcasting consumers, and the files with their offsets."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from rmqtool.client import ClientOptions, From, MessageQueue, PushConsumer, PushOptions, Received
from rmqtool.client.cluster.errors import ClientError
from rmqtool.client.consumer.offsets import LocalOffsets
from rmqtool.rules.broadcast import QueueName, build, parse
from rmqtool.testing import TestBroker
from tests.client.peers import run
from tests.client.test_consuming import committed, fill, numbers, until

A, B = MessageQueue("T", "a", 0), MessageQueue("T", "a", 1)


@pytest.mark.parametrize("orderly", [False, True])
def test_each_gets_all_and_goes_on_by_its_own_file(served: TestBroker, tmp_path: Path, orderly: bool) -> None:
    topic, group = f"Cast{orderly}", f"cast-{orderly}"
    fill(served, topic, 80)
    push = PushOptions(
        orderly=orderly, broadcasting=True, start=From.FIRST, persist_interval=0.1, local_offsets=tmp_path,
        max_tries=1, suspend_pause=0.01,
    )  # fmt: skip

    async def test() -> None:
        got: dict[str, list[int]] = {"one@x": [], "two@x": []}

        def listener(name: str) -> object:
            async def listen(messages: Sequence[Received]) -> None:
                got[name] += numbers(messages)
                if numbers(messages) == [5] and name == "one@x":
                    raise ValueError("not consumed, and gone")

            return listen

        def consumer(name: str) -> PushConsumer:
            client = ClientOptions(namesrv=served.namesrv, client_id=name)
            return PushConsumer(client, group, {topic: "*"}, listener(name), push)  # type: ignore[arg-type]

        async with consumer("one@x"), consumer("two@x") as two:
            await until(lambda: all(set(numbers) == set(range(80)) for numbers in got.values()))
            assert [queue.topic for queue in two.queues()] == [topic] * 4  # no retry topic
        assert got["one@x"].count(5) == (2 if orderly else 1)
        for name in got:
            table = parse((tmp_path / name / group / "offsets.json").read_bytes())
            assert table == {QueueName(topic, "broker-a", queue): 20 for queue in range(4)}
            got[name].clear()
        assert await committed(served, group, topic) == 0  # brokers know nothing of it
        fill(served, topic, 8, 80)
        async with consumer("two@x"):
            await until(lambda: len(got["two@x"]) >= 8)
        assert sorted(got["two@x"]) == list(range(80, 88))

    run(test)


def test_without_an_id_it_has_the_place_of_java(served: TestBroker) -> None:
    consumer = PushConsumer(served.namesrv, "g", {"T": "*"}, print, PushOptions(broadcasting=True))
    assert consumer.cluster.client_id.endswith("@DEFAULT")
    store = consumer._subscriptions.store
    assert isinstance(store, LocalOffsets)
    home = Path("~/.rocketmq_offsets").expanduser().resolve()
    assert store.path == home / consumer.cluster.client_id / "g" / "offsets.json"
    with pytest.raises(ValueError, match="no name for a folder"):
        LocalOffsets(None, "a/../b", "g")


def opened(folder: Path) -> LocalOffsets:
    return LocalOffsets(folder, "me@x", "g")


def test_the_file_lasts_and_the_one_before_is_kept(tmp_path: Path) -> None:
    async def test() -> None:
        kept = opened(tmp_path)
        await kept.open()
        assert await kept.read(A) is None
        await kept.write({A: 3})
        await kept.write({B: 4})
        with pytest.raises(ClientError, match="another consumer"):
            await opened(tmp_path).open()
        await kept.close()
        await kept.write({A: 9})  # closed: it is another's now
        assert parse(kept.path.read_bytes()) == {QueueName("T", "a", 0): 3, QueueName("T", "a", 1): 4}
        assert parse(kept.path.with_name("offsets.json.bak").read_bytes()) == {QueueName("T", "a", 0): 3}
        assert sorted(os.listdir(kept.path.parent)) == ["offsets.json", "offsets.json.bak"]

    run(test)


@pytest.mark.parametrize("torn", [b"", b"\0" * 40, b'{"offsetTable":{{"brok', b"\xff" * 9])
def test_of_a_torn_file_the_one_before_is_read(tmp_path: Path, torn: bytes) -> None:
    async def test() -> None:
        kept = opened(tmp_path)
        kept.path.parent.mkdir(parents=True)
        kept.path.write_bytes(torn)
        kept.path.with_name("offsets.json.bak").write_bytes(build({QueueName("T", "a", 0): 7}))
        await kept.open()
        assert await kept.read(A) == 7
        await kept.close()
        if torn:
            kept.path.with_name("offsets.json.bak").write_bytes(torn)
            with pytest.raises(ClientError, match=r"offsets\.json: byte \d+"):
                await opened(tmp_path).open()
            assert kept.path.read_bytes() == torn

    run(test)


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_what_is_no_file_is_not_waited_for(tmp_path: Path, make: Callable[[Path], None]) -> None:
    kept = opened(tmp_path)
    kept.path.parent.mkdir(parents=True)
    make(kept.path)
    with pytest.raises(ClientError, match="not a regular file"):
        run(kept.open)


def test_a_disk_that_takes_nothing_leaves_the_file_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        kept = opened(tmp_path)
        await kept.open()
        await kept.write({A: 3})
        before = kept.path.read_bytes()

        def full(_descriptor: int) -> None:
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as patched:
            patched.setattr(os, "fsync", full)
            await kept.write({A: 4})
        assert kept.path.read_bytes() == before
        assert os.listdir(kept.path.parent) == ["offsets.json"]
        await kept.write({A: 4})
        assert parse(kept.path.read_bytes()) == {QueueName("T", "a", 0): 4}
        await kept.close()

    run(test)


def test_a_link_stays_one(tmp_path: Path) -> None:
    async def test() -> None:
        real = tmp_path / "elsewhere.json"
        real.write_bytes(build({QueueName("T", "a", 0): 7}))
        link = tmp_path / "me@x" / "g" / "offsets.json"
        link.parent.mkdir(parents=True)
        link.symlink_to(real)
        kept = opened(tmp_path)
        await kept.open()
        await kept.write({A: 8})
        await kept.close()
        assert link.is_symlink()
        assert parse(real.read_bytes()) == {QueueName("T", "a", 0): 8}

    run(test)
