"""README is the manual: its examples run, and print what it says."""

import re
from pathlib import Path

import pytest

from tests import readme

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("readme")
    readme.prepare(made)
    return made


@pytest.mark.parametrize("number", range(len(list(readme.blocks()))))
def test_an_example_prints_what_readme_says(number: int, folder: Path) -> None:
    block = list(readme.blocks())[number]
    assert readme.rendered(block, folder) == block


def test_readme_names_every_command_and_exit_code() -> None:
    from rmqtool.cli.help import TEXT

    text = readme.README.read_text(encoding="utf-8")
    for command in re.findall(r"^  ([a-z-]+)  +[A-Z]", TEXT, re.MULTILINE):
        assert f"`{command} " in text, command
    for code in (0, 1, 2, 3, 4, 5, 6, 130):
        assert re.search(rf"^\| {code} \|", text, re.MULTILINE), code
