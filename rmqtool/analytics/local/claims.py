"""Work that tasks on one machine share out among themselves: each takes what comes next when it has time.

A task for every piece would let cores wait for Spark between two of them, a twentieth of the time of a dump; a fixed
share for every task would let them wait at the end for the slowest.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from rmqtool.analytics.local.scratch import scratch_dir

_ENDED = ".ended"


@dataclass(frozen=True, slots=True)
class Claims:
    """Which pieces were taken: a directory with a file for each."""

    path: str

    def take(self, number: int) -> bool:
        """Whether a piece is ours: nobody has taken it before."""
        try:
            os.close(os.open(f"{self.path}/{number}", os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        except FileExistsError:
            return False
        return True

    def end(self, number: int) -> None:
        """Say that a piece that was taken is done."""
        with suppress(OSError):  # only who watches wants to know
            os.close(os.open(f"{self.path}/{number}{_ENDED}", os.O_CREAT | os.O_WRONLY))

    def any(self) -> bool:
        """Whether a piece was taken."""
        return bool(os.listdir(self.path))

    def read_done(self) -> list[int]:
        """The numbers of the pieces that are done."""
        return [int(name.removesuffix(_ENDED)) for name in os.listdir(self.path) if name.endswith(_ENDED)]


@contextmanager
def new_claims() -> Iterator[Claims]:
    """None is taken yet; forgotten behind the ``with`` block."""
    with scratch_dir("claims") as path:
        yield Claims(path)
