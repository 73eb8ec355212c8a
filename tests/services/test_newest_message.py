"""Where the log ends: behind the newest message that can be read, as a real broker counts it after its start."""

import asyncio
from pathlib import Path

import pytest

from formats.fastjson.declare import read_body
from formats.remoting.bodies import KVTable
from formats.remoting.codes import RequestCode
from formats.remoting.frame import Command
from rmqtool import NewMessage, Store
from rmqtool.remoting.client import open_connection
from rmqtool.server.serve import Served, ServeOptions
from rmqtool.services.lookup.info import store_info
from rmqtool.store.layout.paths import StoreLayout
from tests import goldens
from tests.conftest import Unpacked
from tests.server.serving import address

CASES = [
    "torn-last-record",
    "clean-exit-torn-last-record",
    "torn-header",
    "crash",
    "extra-zero-file",
    "commitlog-deleted",
]


def served_end(store: Path, folder: Path, *, follow: bool = False) -> int:
    """``commitLogMaxOffset`` of a store that is only read."""

    async def run() -> int:
        options = ServeOptions(
            listen=("127.0.0.1", 0), namesrv_listen=("127.0.0.1", 0), read_only=not follow, follow=follow,
            offsets=str(folder / "offsets.csv"),
        )  # fmt: skip
        async with (
            asyncio.timeout(60),
            Served(str(store), options) as served,
            open_connection(*address(served.broker_address)) as client,
        ):
            ends = set()
            for _ in range(2):  # the second goes on from the first
                answer = await client.call(Command(RequestCode.GET_BROKER_RUNTIME_INFO), 30)
                ends.add(int(read_body(KVTable, answer.body).table["commitLogMaxOffset"]))
            (end,) = ends
            return end

    return asyncio.run(run())


@pytest.mark.parametrize("case", CASES)
def test_a_torn_end_does_not_count(case: str, golden: Unpacked, tmp_path: Path) -> None:
    wanted = goldens.recovered(case)["afterLoad"]["maxPhyOffset"]
    assert store_info(StoreLayout(str(golden(case)))).maxPhyOffset == wanted
    assert served_end(golden(case), tmp_path) == wanted


def test_messages_behind_damage_count(golden: Unpacked, tmp_path: Path) -> None:
    """They are read, though a broker cuts them."""
    case = "body-bit-flip-last-file"
    end = store_info(StoreLayout(str(golden(case)))).maxPhyOffset
    assert end > goldens.recovered(case)["afterLoad"]["maxPhyOffset"]
    assert served_end(golden(case), tmp_path) == end


@pytest.mark.parametrize("torn", [100, 200, 391])
def test_messages_that_no_queue_has_yet_count_where_they_are_whole(tmp_path: Path, torn: int) -> None:
    with Store.create(tmp_path / "store") as store:
        done = [store.append(NewMessage(topic="T", queue_id=0, body=b"x" * 300)) for _ in range(40)]
    log = tmp_path / "store/commitlog/00000000000000000000"
    last = done[-1].physical_offset + done[-1].size
    with log.open("r+b") as file:
        file.seek(last - torn)
        file.write(bytes(torn))
    queue = tmp_path / "store/consumequeue/T/0/00000000000000000000"
    with queue.open("r+b") as file:
        file.seek(20 * 20)
        file.write(bytes(20 * 20))
    for _ in range(2):
        assert store_info(StoreLayout(str(tmp_path / "store"))).maxPhyOffset == done[-1].physical_offset
        assert served_end(tmp_path / "store", tmp_path) == done[-1].physical_offset
        queue.unlink(missing_ok=True)  # and without any queue


def test_the_end_moves_with_a_store_that_is_followed(tmp_path: Path) -> None:
    with Store.create(tmp_path / "store") as store:
        first = store.append(NewMessage(topic="T", queue_id=0, body=b"one"))
        store.flush()
        assert served_end(tmp_path / "store", tmp_path, follow=True) == first.physical_offset + first.size
        second = store.append(NewMessage(topic="T", queue_id=0, body=b"two"))
        store.flush()
        assert served_end(tmp_path / "store", tmp_path, follow=True) == second.physical_offset + second.size
