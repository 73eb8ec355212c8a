"""A run of the model: steps by chance, a look behind each, and now and then everything heals."""

import os
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from random import Random

from tests.model.disks import disk
from tests.model.live.steps import WEIGHTS, copy_on_full_disk, full, settle
from tests.model.live.world import World
from tests.model.play import Failure
from tests.model.world import Wrong

_SETTLED_EVERY = 8


def play(seed: int, count: int, home: Path) -> tuple[Counter[str], Failure | None]:
    """So many steps in a world of its own.

    Args:
        home: is made; what was there is left for a look where something went wrong.

    Returns:
        What was done, and what went wrong.
    """
    with ExitStack() as stack:
        home.mkdir(parents=True, exist_ok=True)
        disks = [stack.enter_context(disk(home / name)) for name in ("broker", "own")]
        world = World(home, Random(seed))
        weights = {
            step: chance for step, chance in WEIGHTS.items() if all(disks) or step not in (full, copy_on_full_disk)
        }
        stack.callback(lambda: world.broker.end(9))
        try:
            world.begin()
            for number in range(1, count + 1):
                (step,) = world.rng.choices(list(weights), list(weights.values()))
                world.counts[step.__name__] += 1
                step(world)
                world.look()
                if number % _SETTLED_EVERY == 0 or number == count:
                    settle(world)
                    world.look()
        except Wrong as wrong:
            return world.counts, Failure(seed, str(wrong), world.history)
        except BaseException as error:
            error.add_note(str(Failure(seed, f"the model itself ({os.getpid()})", world.history[-20:])))
            raise
        return world.counts, None
