"""A run of the model: random steps, a check after each, and now and then a full repair."""

import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import NamedTuple

from tests.interop.engine import Engine
from tests.model import services, steps
from tests.model.disks import disk, full_disk
from tests.model.meanwhile import engine_meanwhile
from tests.model.world import World, Wrong

Step = Callable[[World, Random], None]
WEIGHTS: dict[Step, int] = {
    steps.append: 6,
    steps.serve: 3,
    steps.recover: 3,
    steps.dispatch: 1,
    steps.rebuild: 2,
    steps.truncate: 3,
    steps.clean: 2,
    steps.group_reset: 2,
    steps.undo: 3,
    steps.salvage: 1,
    steps.export: 1,
    steps.convert: 1,
    steps.lose_part: 3,
    steps.move: 1,
    steps.copy: 1,
    steps.hide: 1,
    steps.through_a_link: 1,
    steps.full: 1,
    steps.few_descriptors: 1,
    full_disk: 2,
    services.run_once: 2,
    services.requeue: 1,
    services.group_clone: 1,
    services.mirror: 3,
    services.replay: 2,
    services.import_: 1,
    services.init: 1,
    services.dump: 1,
}
_SETTLED_EVERY, _EVERYWHERE_EVERY = 15, 3
_BEGINNINGS = (0, (1 << 31) - (2 << 14), (1 << 32) - (2 << 14))  # numbers of 32 bits end where the log begins


class Failure(NamedTuple):
    """A broken promise, and the steps that led to it."""

    seed: int
    what: str
    history: list[str]

    def __str__(self) -> str:
        return "\n".join([f"seed {self.seed}: {self.what}", *(f"  {line}" for line in self.history)])


def play(
    seed: int, count: int, home: Path, engines: Sequence[Engine] = (), *, random_kills: bool = False
) -> tuple[Counter[str], Counter[str], Failure | None]:
    """Run random steps on a new store.

    Args:
        home: directory to create; removed if nothing went wrong.
        random_kills: see :class:`World`.

    Returns:
        Number of each step, :attr:`World.counts`, and the failure, if any.
    """
    with disk(home) as own_disk:
        world = World(
            home / "world", begins_at=_BEGINNINGS[seed % 3], timers=seed % 4 == 0, random_kills=random_kills,
            own_disk=own_disk,
        )  # fmt: skip
        taken, failure = _play(world, Random(seed), seed, count, engines)
        if failure is not None and own_disk:
            shutil.copytree(home, f"{home}.failed", symlinks=True)
        shutil.rmtree(world.elsewhere, ignore_errors=True)
    return taken, world.counts, failure


def _play(
    world: World, rng: Random, seed: int, count: int, engines: Sequence[Engine]
) -> tuple[Counter[str], Failure | None]:
    weights = dict(WEIGHTS)
    for engine in engines:
        weights[steps.engine_takes(engine)] = 8 // len(engines)
        weights[engine_meanwhile(engine)] = 8 // len(engines)
    taken: Counter[str] = Counter()
    try:
        with world.neighbours:
            world.begin()
            for number in range(1, count + 1):
                (step,) = rng.choices(list(weights), list(weights.values()))
                taken[step.__qualname__.partition(".")[0]] += 1
                step(world, rng)
                world.look(everywhere=number % _EVERYWHERE_EVERY == 0)
                if number % _SETTLED_EVERY == 0:
                    steps.settle(world)
            steps.settle(world)
    except Wrong as wrong:
        return taken, Failure(seed, str(wrong), world.history)
    except Exception as error:
        error.add_note(str(Failure(seed, "the model itself", world.history[-20:])))
        raise
    return taken, None
