"""Coverage of the command line: every writing command is a step of the model, or there is a reason why not."""

from collections.abc import Callable
from random import Random

from tests.model import services, steps
from tests.model.world import World

Step = Callable[[World, Random], None]

STEPS: dict[str, Step] = {
    "append": steps.append,
    "clean": steps.clean,
    "dispatch": steps.dispatch,
    "dlq requeue": services.requeue,
    "dump-to-parquet": services.dump,
    "export": steps.export,
    "group clone": services.group_clone,
    "group reset": steps.group_reset,
    "import": services.import_,
    "init": services.init,
    "mirror": services.mirror,
    "rebuild": steps.rebuild,
    "recover": steps.recover,
    "replay": services.replay,
    "run": services.run_once,
    "salvage": steps.salvage,
    "serve": steps.serve,
    "truncate": steps.truncate,
    "undo": steps.undo,
}
NOT_TAKEN = {
    "warm-up": "it starts Spark once, and writes to the user's cache alone: no store and no message is near it",
}
