"""``browse``: driven by Textual's pilot, and by a real terminal."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from rmqtool import NewMessage, Store
from rmqtool.cli.browse.app import Browser, ListScreen, MessageScreen
from rmqtool.cli.browse.places import ClusterPlace, StorePlace
from rmqtool.cli.browse.rows import RowList
from rmqtool.cli.browse.sources import BrowsedMessages
from rmqtool.cli.framework.opening import live_target
from rmqtool.contract import message_row
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.testing import broker
from tests.amounts import by_turns
from tests.cli.live_terminal import Terminal
from tests.cli.running import ROOT, rmqtool
from tests.conftest import Unpacked
from tests.services import build
from tests.services.build import Builder
from tests.store.helpers import tree

SIZES = [(80, 24), (120, 40)]


class Driver:
    """A browser, its keys, and what it shows."""

    def __init__(self, app: Browser, pilot: Any) -> None:
        self.app, self.pilot = app, pilot

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)
        await self.pilot.pause()

    async def type(self, text: str) -> None:
        for letter in text:
            await self.pilot.press(
                {"/": "slash", "-": "minus", "_": "underscore", ".": "full_stop"}.get(letter, letter)
            )
        await self.press("enter")

    @property
    def lines(self) -> list[str]:
        strips = self.app.screen._compositor.render_strips()
        return ["".join(segment.text for segment in strip) for strip in strips]

    @property
    def text(self) -> str:
        return "\n".join(line.rstrip() for line in self.lines)

    async def wait(self, shown: Callable[[], bool]) -> None:
        for _ in range(600):
            await self.pilot.pause(0.05)
            if shown():
                return
        raise AssertionError(self.text)

    async def wait_for(self, text: str) -> None:
        await self.wait(lambda: text in self.text)

    async def traced(self) -> list[str]:
        """The lines of a message, when its trace has come."""
        screen = self.app.screen
        assert isinstance(screen, MessageScreen)
        await self.wait(lambda: any(line.startswith("Trace: ") for line in screen._lines))
        return screen._lines

    @property
    def rows(self) -> RowList:
        return self.app.screen.query_one(RowList)


def drive(store: Path, play: Callable[[Driver], Awaitable[None]], size: tuple[int, int] = (80, 24)) -> None:
    """Play on a browser of a store, which must not change."""

    async def run() -> None:
        app = Browser(StorePlace("STORE", StoreLayout(str(store))))
        async with app.run_test(size=size) as pilot:
            driver = Driver(app, pilot)
            await driver.wait_for(" of ")
            await driver.wait(lambda: driver.rows.source.complete)
            await play(driver)

    before = tree(store)
    asyncio.run(run())
    assert tree(store) == before


@by_turns(7)
@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("case", ["broker", "broker-5.3.3"])
def test_from_topics_to_a_message(case: str, size: tuple[int, int], golden: Unpacked) -> None:
    store = Store(golden(case))
    topic = "Orders" if case == "broker" else next(t for t in store.topics() if not t.startswith(("%", "rmq_", "SCH")))
    queue = store.queues(topic)[0]
    messages = list(store.queue_messages(topic, queue.queueId))

    async def play(driver: Driver) -> None:
        await driver.press("slash")
        await driver.type(topic)
        await driver.press("enter")
        assert f"STORE › {topic}" in driver.text
        await driver.press("enter")
        await driver.wait_for("Offset")
        for message in messages[: size[1] - 6]:
            line = next(line for line in driver.lines if line.strip().startswith(f"{message.queue_offset:,} "))
            assert (message.tags or "") in line
            assert not message.keys or message.keys[0] in line
        assert all(len(line) == size[0] for line in driver.lines)
        await driver.press("down", "down", "enter")
        chosen = messages[2]
        lines = "\n".join(await driver.traced())
        assert chosen.message_id in driver.text
        assert f"{topic}/{chosen.queue_id} offset {chosen.queue_offset}" in lines
        await driver.press("escape")
        assert driver.rows.cursor == 2
        await driver.press("left", "backspace", "escape", "escape")
        assert "STORE › Topics" in driver.text

    drive(golden(case), play, size)


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A queue of fifty thousand messages."""
    path = tmp_path_factory.mktemp("many") / "store"
    with Store.create(path) as store:
        for start in range(0, 50_000, 10_000):
            numbers = range(start, start + 10_000)
            store.append_many([NewMessage(topic="Big", queue_id=0, body=b"x", keys=f"key-{n}") for n in numbers])
    return path


@by_turns(7)
def test_only_what_is_looked_at_is_read(many: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    read_messages = Store.queue_messages

    def noted(self: Store, topic: str, queue_id: int, start: int, stop: int) -> Any:
        read.extend(range(start, stop))
        return read_messages(self, topic, queue_id, start, stop)

    monkeypatch.setattr(Store, "queue_messages", noted)

    async def play(driver: Driver) -> None:
        await driver.press("enter", "enter")
        await driver.wait_for("1 of 50,000")
        await driver.press("end")
        await driver.wait_for("key-49999")
        assert "50,000 of 50,000" in driver.text
        await driver.press("slash")
        await driver.type("25000")
        await driver.wait_for("25,001 of 50,000")
        assert driver.lines[2 + driver.rows.cursor - int(driver.rows.scroll_offset.y)].split()[0] == "25,000"
        await driver.press("slash")
        await driver.type("key-31234")
        await driver.wait_for("31,235 of 50,000")
        await driver.press("slash")
        await driver.type("nothing")
        await driver.wait_for("nothing: not here")
        await driver.press("home", "pagedown", "up")
        assert driver.rows.cursor == driver.rows.size.height - 2

    drive(many, play)
    assert len(read) < 500


@by_turns(3)
@pytest.mark.parametrize("topics", [10_000])
def test_many_topics(topics: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "FILE_SIZE", 4 << 20)
    monkeypatch.setattr(build, "QUEUE_FILE_SIZE", 200)
    builder = Builder()
    for number in range(topics):
        builder.put(f"topic-{number:05d}", number % 4)
    store = builder.write(tmp_path)
    listed: list[str] = []

    def scan(path: str) -> Any:
        listed.append(path)
        return scandir(path)

    scandir = os.scandir
    with monkeypatch.context() as patched:
        patched.setattr(os, "scandir", scan)
        assert StorePlace("STORE", StoreLayout(str(store))).topics().count == topics
    assert len(listed) < 30, "no topic's directory"

    async def play(driver: Driver) -> None:
        await driver.wait_for(f"1 of {topics:,}")
        await driver.press("end")
        await driver.wait_for("topic-09999")
        await driver.press("slash")
        await driver.type("4321")
        await driver.wait_for(f"4,322 of {topics:,}")
        await driver.press("n")
        await driver.wait_for(f"4,322 of {topics:,}")  # the only one

    drive(store, play)


def test_groups_lead_to_the_next_message(tmp_path: Path) -> None:
    builder = Builder()
    for number in range(50):
        builder.put("T", 1, body=f"body-{number}".encode())
    store = builder.write(tmp_path, {"consumerOffset.json": '{"offsetTable":{"T@G":{"1":41}}}'})

    async def play(driver: Driver) -> None:
        await driver.press("2")
        await driver.wait_for("STORE › Groups")
        line = next(line for line in driver.lines if line.startswith("G "))
        assert line.split()[:3] == ["G", "1", "9"]
        await driver.press("enter")
        await driver.wait_for("behind")
        await driver.press("enter")
        await driver.wait_for("42 of 50")
        await driver.press("enter")
        await driver.wait_for("body-41")

    drive(store, play)


def test_findings_come_with_their_cure(golden: Unpacked) -> None:
    store = golden("magic-broken-last-file")
    parsed = json.loads(rmqtool("check", store, "-o", "json").out)

    async def play(driver: Driver) -> None:
        await driver.press("3")
        await driver.wait(lambda: f"of {len(parsed)}" in driver.text and "checking" not in driver.text)
        shown = [line.split()[1] for line in driver.lines[2 : 2 + len(parsed)]]
        assert shown == [row["code"] for row in parsed]
        at = next(number for number, row in enumerate(parsed) if row["code"] == "log-damage")
        await driver.press(*["down"] * at, "enter")
        await driver.wait_for("What to do")
        assert "salvage" in driver.text

    drive(store, play, (120, 40))


@by_turns(3)
def test_an_export_has_what_other_commands_have(
    golden: Unpacked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    store = golden("broker")
    rows = [
        message_row(message.record, message.physical_offset) for message in Store(store).queue_messages("Orders", 0)
    ]
    Path("taken").write_text("mine")

    async def play(driver: Driver) -> None:
        await driver.press("slash")
        await driver.type("Orders")
        await driver.press("enter", "enter")
        await driver.wait_for("Offset")
        await driver.press("down", "down", "down", "e")
        await driver.type("out")
        await driver.wait_for(f"{len(rows) - 3} rows written to out")
        await driver.press("enter")
        await driver.traced()
        await driver.press("e")
        await driver.type("one")
        await driver.wait_for("1 row written to one")
        await driver.press("e")
        await driver.type("taken")
        await driver.wait_for("exists")
        await driver.press("e", "x", "escape")
        assert not Path("x").exists()

    drive(store, play)
    assert [json.loads(line) for line in Path("out").read_text().splitlines()] == rows[3:]
    assert [json.loads(line) for line in Path("one").read_text().splitlines()] == rows[3:4]
    assert Path("taken").read_text() == "mine"


def test_nothing_is_exported_into_the_store(golden_copy: Unpacked, monkeypatch: pytest.MonkeyPatch) -> None:
    store = golden_copy("clean")
    monkeypatch.chdir(store / "commitlog")

    async def play(driver: Driver) -> None:
        await driver.press("e")
        await driver.type("out")
        await driver.wait_for("lies in the store")

    drive(store, play)


def test_hostile_texts_do_not_reach_the_terminal(tmp_path: Path) -> None:
    builder = Builder()
    evil = "\x1b]0;title\x07\x1b[31m[red]\u202e"
    builder.put("[bold]T", 0, body=evil.encode(), properties={"KEYS": evil, "[x]": "\x9b2J"})
    store = builder.write(tmp_path)

    async def play(driver: Driver) -> None:
        await driver.wait_for("[bold]T")
        await driver.press("enter", "enter")
        await driver.wait_for("\\x1b")
        await driver.press("enter")
        await driver.traced()
        assert "\\x1b[31m[red]\\u202e" in driver.text
        assert not {*driver.text} & {chr(code) for code in (*range(10), *range(11, 32), *range(127, 160), 0x202E)}

    drive(store, play, (120, 40))


def test_messages_that_cannot_be_read_have_rows(golden_copy: Unpacked) -> None:
    store = golden_copy("clean")
    topic = Store(store).topics()[0]
    queue = Store(store).queues(topic)[0]
    offsets = [message.physical_offset for message in Store(store).queue_messages(topic, queue.queueId)]
    files = sorted((store / "commitlog").iterdir())
    path = max(file for file in files if int(file.name) <= offsets[3])
    with path.open("r+b") as file:
        file.seek(offsets[3] - int(path.name))
        file.write(bytes(40))

    async def play(driver: Driver) -> None:
        await driver.press("enter", "enter")
        await driver.wait_for("no message here")
        await driver.press("down", "down", "down", "enter")
        assert isinstance(driver.app.screen, ListScreen)
        await driver.wait_for("no message can be read here")
        source = driver.app.screen._source
        assert isinstance(source, BrowsedMessages)
        assert [source.message(row) is None for row in range(6)] == [False, False, False, True, False, False]

    drive(store, play)


@pytest.mark.parametrize("size", [(40, 10), (20, 5)], ids=str)
def test_small_terminals(size: tuple[int, int], golden: Unpacked) -> None:
    async def play(driver: Driver) -> None:
        await driver.press("down", "enter", "enter", "2", "3", "1", "end")
        assert all(len(line) == size[0] for line in driver.lines)

    drive(golden("broker"), play, size)


def test_the_first_list_needs_little_of_the_engine() -> None:
    code = (
        "import sys, rmqtool.cli.browse.app; heavy = ('numpy', 'pyarrow', 'rmqtool.store.check.run');"
        "print([name for name in heavy if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout == "[]\n"


def test_topics_are_shown_before_they_are_counted(golden: Unpacked) -> None:
    topics = StorePlace("STORE", StoreLayout(str(golden("broker")))).topics()
    row = topics.names.index("Orders")
    assert topics.cells(row)[:3] == ("Orders", "", "")
    topics.complete_cells()
    assert topics.cells(row)[:3] == ("Orders", "4", "420")


# -- at a real terminal -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_at_a_terminal(size: tuple[int, int], golden: Unpacked) -> None:
    columns, rows = size
    terminal = Terminal("browse", golden("broker"), columns=columns, rows=rows)
    try:
        terminal.wait(" of ")
        terminal.wait("Topics")
        terminal.type("/Orders\r")
        terminal.wait("10 of ")
        terminal.type("\r")
        terminal.wait("From offset")
        terminal.type("\r")
        terminal.wait("order-")
        terminal.type("\x1b[B\r")
        terminal.wait("Properties")
        terminal.wait(lambda text: "tracing" not in text)
        terminal.type("q")
        assert terminal.end() == 0
        assert terminal.restored()
    finally:
        terminal.close()


@by_turns(2)
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_signals_leave_the_terminal_as_it_was(number: int, code: int, golden: Unpacked) -> None:
    terminal = Terminal("browse", golden("broker"))
    try:
        terminal.wait(" of ")
        terminal.process.send_signal(number)
        assert terminal.end() == code
        assert terminal.restored()
    finally:
        terminal.close()


def test_without_a_terminal(golden: Unpacked) -> None:
    result = rmqtool("browse", golden("broker"))
    assert (result.code, result.out, result.err) == (2, "", "error: browse needs a terminal\n")


def test_without_the_library(golden: Unpacked, tmp_path: Path) -> None:
    (tmp_path / "textual.py").write_text("raise ModuleNotFoundError('No module named textual', name='textual')")
    terminal = Terminal("browse", golden("broker"), env={"PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"})
    try:
        assert terminal.end() == 2
        assert terminal.text.split("\n")[0].rstrip() == "error: browse needs Textual: pip install textual"
        assert terminal.text.count("error") == 1
    finally:
        terminal.close()


def test_no_store(tmp_path: Path) -> None:
    terminal = Terminal("browse", tmp_path)
    try:
        assert terminal.end() == 3
        assert "not a store directory" in " ".join(terminal.text.split())
    finally:
        terminal.close()


def test_a_live_cluster_has_the_lists_of_its_store(golden_copy: Unpacked) -> None:
    """Topics, queues, messages, groups and what doctor finds; an export of messages is that of the store."""
    path = golden_copy("broker")
    store = Store(path)
    queue = next(each for each in store.queues("Orders") if each.queueId == 0)
    offsets = range(queue.minOffset, queue.maxOffset)
    expected = [message_row(message.record, message.physical_offset) for message in store.queue_messages("Orders", 0)]
    with broker(path) as served:
        target = live_target(f"rocketmq://{served.namesrv}")
        assert target is not None
        place = ClusterPlace("CLUSTER", target)

        async def run() -> None:
            app = Browser(place)
            async with app.run_test(size=(120, 40)) as pilot:
                driver = Driver(app, pilot)
                await driver.wait_for(" of ")
                await driver.press("slash")
                await driver.type("Orders")
                assert "Orders " in driver.text
                await driver.press("enter")
                assert "broker-a" in driver.text
                await driver.press("enter")
                assert driver.rows.source.count == len(offsets)
                rows = [*driver.rows.source.exported(0)]
                assert [row["body"] for row in rows] == [row["body"] for row in expected]
                assert [row["queueOffset"] for row in rows] == [*offsets]
                await driver.press("enter")
                assert any("Trace: " in line for line in await driver.traced())
                await driver.press("2")
                await driver.wait_for("lab-consumer")
                await driver.press("3")
                await driver.wait(lambda: app.checked)

        asyncio.run(run())
        assert place.warnings == []
