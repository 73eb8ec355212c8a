"""Configuration files written by brokers, with their models."""

from pathlib import Path

from formats.config.file import ConfigFile
from formats.config.files import kind_of
from formats.model.topics import DataVersion
from rmqtool.rules.releases import RELEASES

GOLDEN = Path(__file__).parents[1] / "golden" / "config"
WRITTEN_BY = {"4.9-broker": "4.9", "4.9-clean": "4.9", "5.3-managers": "5.3"}
FILES = [path for folder in WRITTEN_BY for path in sorted((GOLDEN / folder).iterdir())]
VERSION = DataVersion(counter=3, timestamp=1700000000123)


def named(path: Path) -> str:
    return f"{path.parent.name}/{path.name}"


def model(path: Path) -> type[ConfigFile]:
    kind = kind_of(path.name)
    assert kind is not None
    return kind


def text(lines: str) -> bytes:
    """Sample text, with two spaces replaced by a TAB."""
    stripped = lines.strip("\n").split("\n")
    return "\n".join("\t" * ((len(line) - len(line.lstrip())) // 2) + line.lstrip() for line in stripped).encode()


def check(sample: str, expected: ConfigFile, engine: str = "5.3") -> None:
    raw = text(sample)
    assert type(expected).parse(raw) == expected
    assert expected.build(RELEASES[engine].version) == raw
