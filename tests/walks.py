"""How far a reader walks to follow a command through the code; ``python -m tests.walks [TRIP...] [--route]``.

Six trips run once on a small store, and every function of ours is recorded when it is called for the first time. A
reader starts at the command's function and opens, in this order, each function that calls others of ours, up to five
calls deep. What all commands stand on (``_KNOWN``) is known by its names and not opened. Each change of file is a step,
down into a function or back up to its caller to read on there. Files are rooms; a return is a step to a room that was
left before, counted once with coming back up to a caller, and once without.
"""

import argparse
import asyncio
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from types import CodeType, FrameType

from examples.quickstart import power_cut
from rmqtool import NewMessage, Store
from rmqtool.client import Message, Producer, PullConsumer
from rmqtool.testing import broker
from tests.cli.running import rmqtool

_ROOT = f"{Path(__file__).parents[1]}/"
_SAMPLE = Path(_ROOT, "examples/store")
_DEPTH = 5  # calls below the command's function
_OURS = ("rmqtool/", "formats/")
_KNOWN = (
    "formats/",
    "rmqtool/analytics/remote/",
    "rmqtool/cli/framework/",
    "rmqtool/cli/render/",
    "rmqtool/progress.py",
    "rmqtool/rules/",
    "rmqtool/store/disk/",
    "rmqtool/store/layout/",
    "rmqtool/store/log/",
    "rmqtool/words.py",
)


def _recover(recorder: "Recorder", store: Path) -> None:
    power_cut(store)
    with recorder.recording():
        rmqtool("recover", store, "--yes")


def _query_key(recorder: "Recorder", store: Path) -> None:
    with recorder.recording():
        rmqtool("query-key", store, "Orders", "order-10")


def _dump(recorder: "Recorder", store: Path) -> None:
    with recorder.recording():
        rmqtool("dump-to-parquet", store, store.with_name("out"), "--runner", "local")


def _append(recorder: "Recorder", store: Path) -> None:
    with Store(store, write=True) as opened, recorder.recording():
        opened.append(NewMessage(topic="Orders", body=b"hello"))


def _pull(recorder: "Recorder", store: Path) -> None:
    async def pull(namesrv: str) -> None:
        async with PullConsumer(namesrv, "walkers") as consumer:
            queue = (await consumer.queues("Orders"))[0]
            await consumer.assign([queue])
            with recorder.recording():
                await consumer.poll(1.0)

    with recorder.in_threads(), broker(store) as served:
        asyncio.run(pull(served.namesrv))


def _send(recorder: "Recorder", store: Path) -> None:
    async def send(namesrv: str) -> None:
        async with Producer(namesrv) as producer:
            with recorder.recording():
                await producer.send(Message("Orders", b"hello"))

    with broker(store) as served:
        asyncio.run(send(served.namesrv))


TRIPS: dict[str, tuple[str, Callable[["Recorder", Path], None]]] = {
    "recover": ("recover", _recover),
    "query-key": ("run_query_key", _query_key),
    "dump": ("dump_to_parquet", _dump),
    "append": ("Store.append", _append),
    "pull": ("Connection._answer", _pull),
    "send": ("Producer.send", _send),
}


class Recorder:
    """Functions of ours in the order of their first calls, each with its caller."""

    def __init__(self) -> None:
        self.calls: dict[CodeType, CodeType | None] = {}
        self.callers: set[CodeType] = set()
        self._on = False

    @contextmanager
    def recording(self) -> Iterator[None]:
        self._on = True
        sys.setprofile(self._note)
        try:
            yield
        finally:
            sys.setprofile(None)
            self._on = False

    @contextmanager
    def in_threads(self) -> Iterator[None]:
        """Record also what threads that start in here call."""
        threading.setprofile(self._note)
        try:
            yield
        finally:
            threading.setprofile(None)

    def _note(self, frame: FrameType, event: str, _argument: object) -> None:
        code = frame.f_code
        if not self._on or event != "call" or not _is_function(code):
            return
        outer = frame.f_back
        while outer is not None and not _is_function(outer.f_code):
            if outer.f_code.co_filename.startswith("<frozen importlib"):
                return
            outer = outer.f_back
        caller = None if outer is None or outer.f_code is code else outer.f_code
        self.calls.setdefault(code, caller)
        if caller is not None:
            self.callers.add(caller)


def _is_function(code: CodeType) -> bool:
    ours = code.co_filename.startswith(tuple(_ROOT + part for part in _OURS))
    return ours and not code.co_name.startswith("<")


@dataclass
class Walk:
    """A reader's steps: each a room, and the functions opened there."""

    steps: list[tuple[str, list[str]]] = field(default_factory=list)
    opened: list[str] = field(default_factory=list)  # rooms in which functions were opened, in order

    @property
    def rooms(self) -> int:
        return len({room for room, _functions in self.steps})

    @property
    def returns(self) -> int:
        return len(self.steps) - self.rooms

    @property
    def reopened(self) -> int:
        """Returns that open another function."""
        return sum(room != before for before, room in pairwise(self.opened)) + 1 - self.rooms

    def step(self, room: str, function: str) -> None:
        if not self.steps or self.steps[-1][0] != room:
            self.steps.append((room, []))
        self.steps[-1][1].append(function)


def walk(name: str) -> Walk:
    """Make a trip and walk it as a reader."""
    start, make = TRIPS[name]
    recorder = Recorder()
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder, "store")
        shutil.copytree(_SAMPLE, store)
        make(recorder, store)
    depths: dict[CodeType, int] = {}
    opened: dict[CodeType, CodeType | None] = {}  # with the nearest caller that was opened
    walked = Walk()
    for code, caller in recorder.calls.items():
        if not depths and code.co_qualname == start:
            depths[code] = 0
        elif caller in depths and depths[caller] < _DEPTH:
            depths[code] = depths[caller] + 1
        else:
            continue
        room = code.co_filename.removeprefix(_ROOT)
        if code not in recorder.callers or room.startswith(_KNOWN):
            continue
        while caller is not None and caller not in opened:
            caller = recorder.calls.get(caller)
        opened[code] = caller
        if walked.steps and caller is not None and walked.steps[-1][0] != room:
            walked.step(caller.co_filename.removeprefix(_ROOT), f"(on in {caller.co_qualname})")
        walked.step(room, code.co_qualname)
        walked.opened.append(room)
    return walked


def main() -> None:
    """Print rooms and returns of each trip, with ``--route`` every step."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("trips", nargs="*", default=list(TRIPS), metavar="TRIP")
    parser.add_argument("--route", action="store_true", help="print every step")
    arguments = parser.parse_args()
    for name in arguments.trips:
        walked = walk(name)
        if arguments.route:
            for room, functions in walked.steps:
                print(f"  {room:50} {', '.join(functions)}")
        print(f"{name}: {walked.rooms} rooms, {walked.returns} returns, {walked.reopened} of them to open a function")


if __name__ == "__main__":
    main()
