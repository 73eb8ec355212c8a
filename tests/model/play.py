"""A run of the model: steps by chance, a look behind each, and now and then everything is brought in order."""

import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import NamedTuple

from tests.interop.engine import Engine
from tests.model import steps
from tests.model.world import World, Wrong

Step = Callable[[World, Random], None]
WEIGHTS: dict[Step, int] = {
    steps.append: 8,
    steps.recover: 3,
    steps.dispatch: 1,
    steps.rebuild: 2,
    steps.truncate: 3,
    steps.clean: 2,
    steps.group_reset: 2,
    steps.undo: 3,
    steps.salvage: 1,
    steps.lose_part: 3,
    steps.move: 1,
    steps.copy: 1,
    steps.hide: 1,
    steps.through_a_link: 1,
    steps.full: 1,
    steps.few_descriptors: 1,
}
_SETTLED_EVERY = 15


class Failure(NamedTuple):
    """A promise that was not kept, and the way there."""

    seed: int
    what: str
    history: list[str]

    def __str__(self) -> str:
        return "\n".join([f"seed {self.seed}: {self.what}", *(f"  {line}" for line in self.history)])


def play(seed: int, count: int, home: Path, engines: Sequence[Engine] = ()) -> tuple[Counter[str], Failure | None]:
    """So many steps on a store of its own; how often each was taken, and what went wrong.

    Args:
        home: is made, and removed where nothing went wrong.
    """
    rng, world = Random(seed), World(home)
    weights = dict(WEIGHTS)
    for engine in engines:
        weights[steps.engine_takes(engine)] = 6 // len(engines)
    taken: Counter[str] = Counter()
    try:
        world.begin()
        for number in range(1, count + 1):
            (step,) = rng.choices(list(weights), list(weights.values()))
            taken[step.__qualname__.partition(".")[0]] += 1
            step(world, rng)
            world.look()
            if number % _SETTLED_EVERY == 0:
                steps.settle(world)
        steps.settle(world)
    except Wrong as wrong:
        return taken, Failure(seed, str(wrong), world.history)
    shutil.rmtree(home)
    return taken, None
