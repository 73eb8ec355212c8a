"""Work shared between tasks on one machine: each task takes the next piece when it is ready.

With one task per piece, cores would wait for Spark between pieces, a twentieth of the time of a dump; with a fixed
share per task, they would wait at the end for the slowest.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from rmqtool.analytics.local.scratch import scratch_dir

_ENDED = ".ended"


@dataclass(frozen=True, slots=True)
class Claims:
    """Which pieces have been taken: a directory with one file per piece."""

    path: str

    def take(self, number: int) -> bool:
        """Try to take a piece; return False if it has been taken before."""
        try:
            os.close(os.open(f"{self.path}/{number}", os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        except FileExistsError:
            return False
        return True

    def end(self, number: int) -> None:
        """Record that a piece has been completed."""
        with suppress(OSError):  # only needed for progress reports
            os.close(os.open(f"{self.path}/{number}{_ENDED}", os.O_CREAT | os.O_WRONLY))

    def any(self) -> bool:
        """Return whether any piece has been taken."""
        return bool(os.listdir(self.path))

    def read_done(self) -> list[int]:
        """Return the numbers of the completed pieces."""
        return [int(name.removesuffix(_ENDED)) for name in os.listdir(self.path) if name.endswith(_ENDED)]


@contextmanager
def new_claims() -> Iterator[Claims]:
    """Yield an empty set of claims, removed at the end of the ``with`` block."""
    with scratch_dir("claims") as path:
        yield Claims(path)
