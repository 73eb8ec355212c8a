"""JSON files written by brokers."""

from pathlib import Path

GOLDEN = Path(__file__).parents[1] / "golden" / "config"
PRETTY = sorted(path for path in GOLDEN.glob("*/*.json*") if "compact" not in path.name)
COMPACT = sorted(GOLDEN.glob("*/*etrics"))


def named(path: Path) -> str:
    return f"{path.parent.name}/{path.name}"
