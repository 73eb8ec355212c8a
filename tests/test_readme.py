"""README is the manual: its examples run, and print what it says."""

import re
from pathlib import Path

import pytest

from tests import readme

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]


def test_the_examples_print_what_readme_says(tmp_path: Path) -> None:
    """In README's order: later examples build on what earlier ones did to their stores."""
    readme.prepare(tmp_path)
    seen = 0
    for block in readme.blocks():
        assert readme.loose(readme.rendered(block, tmp_path)) == readme.loose(block)
        seen += 1
    assert seen > 10


def test_readme_names_every_command_and_exit_code() -> None:
    from rmqtool.cli.shell.help import TEXT

    text = readme.README.read_text(encoding="utf-8")
    for command in re.findall(r"^  ([a-z][a-z-]+)  +[A-Z]", TEXT, re.MULTILINE):
        assert f"`{command} " in text, command
    for code in (0, 1, 2, 3, 4, 5, 6, 130, 143):
        assert re.search(rf"^\| {code} \|", text, re.MULTILINE), code
