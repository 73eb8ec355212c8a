"""Golden screens of situations that lose messages, and of the most used commands. A run checks some of them, in one
size.
"""

import re

import pytest

from rmqtool.store.check.codes.all import CODES
from tests.amounts import by_turns, every, some
from tests.cli.screens import ALL, SITUATIONS, SIZES, path_of, recorded

# of these every line is words; others have cells
SENTENCES = ("check", "explain", "recover", "wrong", "group-lag", "topic-list")
_SHOWN = [(name, columns) for name in ALL for columns, _rows in SIZES]
_NAMES = every(8, list(ALL))
_RECORDED = some(SIZES[:1], SIZES)
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("screens")]


@pytest.fixture(scope="session")
def shown() -> dict[tuple[str, int], str]:
    """The screens of this run, recorded once."""
    return recorded(list(_NAMES), _RECORDED)


@by_turns(1)  # what has been recorded
@pytest.mark.parametrize(("name", "columns"), [(name, columns) for name in _NAMES for columns, _rows in _RECORDED])
def test_as_recorded(name: str, columns: int, shown: dict[tuple[str, int], str]) -> None:
    """``python -m tests.cli.screens`` updates them."""
    assert shown[name, columns] == path_of(name, columns).read_text()


def test_no_screen_is_left_of_an_earlier_time() -> None:
    folder = path_of("help", 80).parent
    assert {path.name for path in folder.iterdir()} == {path_of(*screen).name for screen in _SHOWN}


@pytest.mark.parametrize("code", SITUATIONS)
def test_the_situations_are_those_that_they_are_called(code: str) -> None:
    assert CODES[code].severity == "error"
    text = path_of(f"check-{code}", 200).read_text()
    assert re.search(rf"^ *{code}: ", text, re.MULTILINE)
    assert "Lost: " in text
    assert "What to do" in text


@pytest.mark.parametrize(("name", "columns"), [screen for screen in _SHOWN if screen[0].startswith(SENTENCES)])
def test_no_word_is_broken_at_the_edge(name: str, columns: int) -> None:
    """Except commands, which must stay whole for copying. The widest screen shows what is one word."""
    lines = path_of(name, columns).read_text().splitlines()
    words = set(path_of(name, max(columns for columns, _rows in SIZES)).read_text().split())
    full = [number for number, line in enumerate(lines[:-1]) if len(line) == columns and lines[number + 1][:1].strip()]
    broken = [lines[number] for number in full if lines[number].split()[-1] + lines[number + 1].split()[0] in words]
    assert not [line for line in broken if not re.match(r"( *\d+\. | {3})(rmqtool|truncate|mv) ", line)]
