"""A real engine started while a command writes: it loads the store, and takes the lock last."""

import threading
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

from tests.interop.engine import Engine
from tests.model.commands import Pause
from tests.model.services import mirror, run_once
from tests.model.steps import append, serve
from tests.model.world import SIZES, World, Wrong

_LONGEST = 60.0  # s
_WRITERS: tuple[Callable[[World, Random, Pause], None], ...] = (append, append, serve, serve, run_once, mirror)


def engine_meanwhile(engine: Engine) -> Callable[[World, Random], None]:
    """A step of the model: the engine starts when the command is about to do some step of writing."""

    def step(world: World, rng: Random) -> None:
        world.met |= world.pending
        starting = _Starting(engine, world)
        rng.choice(_WRITERS)(world, rng, Pause(rng.choice((3, 10, 30, 60, 100, 150)), starting.begin))
        starting.join()

    return step


class _Starting:
    """The engine's start, parallel to the command."""

    def __init__(self, engine: Engine, world: World) -> None:
        self._engine, self._world = engine, world
        self._thread = threading.Thread(target=self._start, daemon=True)
        self._said = ""
        self._error: BaseException | None = None

    def begin(self) -> None:
        """Start; returns when it has loaded the store, or waits for the command."""
        self._thread.start()
        until = time.monotonic() + _LONGEST
        while self._thread.is_alive() and not self._loaded and not waits(self._engine) and time.monotonic() < until:
            time.sleep(0.005)

    _loaded = False

    def _start(self) -> None:
        engine, store = self._engine, self._world.store
        try:
            engine.step("construct", store, SIZES)
            loaded = engine.step("load", store)
            self._loaded = True
            answer = engine.step("start", store) if loaded.get("loadOk") else {}
            self._said = f"load {loaded.get('loadOk')}, start {answer.get('started')}"
            if answer.get("started"):
                engine.step("end", store)
            else:
                engine._end(kill=True)  # as a broker's process ends then
        except BaseException as err:  # told by the thread that waits for this one
            self._error = err

    def join(self) -> None:
        """Finish, after the command has ended.

        Raises:
            Wrong: the engine hangs.
        """
        if self._thread.ident is None:
            return  # the command took fewer steps
        self._thread.join(_LONGEST)
        if self._thread.is_alive():
            raise Wrong(f"the engine {self._engine.version} hangs")
        if self._error is not None:
            raise self._error
        self._world.counts["started meanwhile"] += 1
        self._world.history.append(f"{self._engine.version} was started meanwhile: {self._said}")


def waits(engine: Engine) -> bool:
    """Whether the engine waits for a lease."""
    jvm = engine._jvm  # another thread starts and ends it
    if jvm is None:
        return False
    try:
        pids = {task.name for task in Path(f"/proc/{jvm.pid}/task").iterdir()} | {str(jvm.pid)}
    except FileNotFoundError:
        return False
    lines = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
    return any("BREAKER" in fields and pids & set(fields) for fields in lines)
