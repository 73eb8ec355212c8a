"""Comparison of one damaged store."""

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rmqtool.rules.releases import release_named
from rmqtool.store.recovery.report import RecoveryReport
from tests.interop.differential.bases import Base


@dataclass
class Case:
    """One damaged store, and the differences found."""

    seed: int
    release: str  # of the engine that judges
    base: Base
    done: list[str]
    folder: Path
    problems: list[str] = field(default_factory=list)
    again: RecoveryReport | None = None  # what a second recovery would do
    excepted: set[str] = field(default_factory=set)

    @property
    def engine(self) -> str:
        """The release whose rules rmqtool follows."""
        return release_named(self.release).name

    @property
    def text(self) -> str:
        """Text for a failure message."""
        lines = [f"seed {self.seed}, judge {self.release}, store {self.base.name}, kept in {self.folder / 'damaged'}"]
        return "\n  ".join(lines + self.done + [f"=> {problem}" for problem in self.problems])

    def same(self, what: str, mine: Any, theirs: Any) -> None:
        """Record a difference, if any."""
        if mine != theirs:
            self.problems.append(f"{what}: {difference(mine, theirs)}")


def difference(mine: Any, theirs: Any) -> str:
    """A short description of two values that should be equal."""
    if isinstance(mine, dict) and isinstance(theirs, dict):
        keys = [k for k in {**mine, **theirs} if mine.get(k) != theirs.get(k)]
        shown = "; ".join(f"{k}: rmqtool {mine.get(k)!r}, engine {theirs.get(k)!r}" for k in keys[:4])
        return f"{len(keys)} differ: {shown}"
    if isinstance(mine, list) and isinstance(theirs, list):
        left, right = Counter(map(repr, mine)), Counter(map(repr, theirs))
        return f"only rmqtool {list((left - right).elements())[:4]}, only engine {list((right - left).elements())[:4]}"
    return f"rmqtool {mine!r}, engine {theirs!r}"
