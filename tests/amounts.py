"""How much a whole run looks at: a part of what some tests could, so that it ends in time on two cores.

``RMQTOOL_TESTS=all`` looks at everything: every step at which a process may be killed, every seed, both sanitizers.
"""

import os
from typing import TypeVar

T = TypeVar("T")
ALL = os.environ.get("RMQTOOL_TESTS") == "all"


def some(part: T, everything: T) -> T:
    """The amount for this run."""
    return everything if ALL else part
