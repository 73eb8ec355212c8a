"""Long output on a terminal goes through a pager."""

import shlex
import sys
from pathlib import Path

import pytest

from tests.cli.running import process
from tests.cli.terminal import at_terminal
from tests.conftest import Unpacked

LIST = ("commitlog", "dump", "STORE", "--limit", "200")


def pager(folder: Path, code: str) -> str:
    """A test pager: a program that gets the output on stdin, and ``seen``, a file path."""
    script = folder / "pager.py"
    script.write_text(f"import sys\nseen = {str(folder / 'seen')!r}\n{code}")
    return f"{shlex.quote(sys.executable)} {shlex.quote(str(script))}"


KEEPS = "text = sys.stdin.read(); open(seen, 'w').write(text); print('shown by the pager')"


def test_it_gets_what_would_stand_on_the_terminal(golden: Unpacked, tmp_path: Path) -> None:
    args = [golden("broker") if word == "STORE" else word for word in LIST]
    code, plain = at_terminal(*args)
    paged_code, paged = at_terminal(*args, PAGER=pager(tmp_path, KEEPS))
    seen = (tmp_path / "seen").read_text()
    assert (code, paged_code) == (0, 0)
    assert seen in plain
    assert seen.count("msgId") == 200
    assert paged.splitlines()[-1] == "shown by the pager" or "shown by the pager" in paged


@pytest.mark.parametrize("how", ["--no-pager", "PAGER=", "PAGER=cat", "TERM=dumb", "PAGER=no-such-program -x"])
def test_it_is_off_on_demand(how: str, golden: Unpacked, tmp_path: Path) -> None:
    args = [golden("broker") if word == "STORE" else word for word in LIST]
    env = {"PAGER": pager(tmp_path, KEEPS)}
    if how.startswith("--"):
        args.append(how)
    else:
        env |= dict([how.split("=")])
    code, shown = at_terminal(*args, **env)  # type: ignore[arg-type]
    assert (code, shown.count("msgId")) == (0, 200)
    assert not (tmp_path / "seen").exists()


def test_who_has_seen_enough_ends_it(golden: Unpacked, tmp_path: Path) -> None:
    args = ("commitlog", "dump", golden("large-bodies"), "--body", "base64")
    code, shown = at_terminal(*args, PAGER=pager(tmp_path, "print(sys.stdin.readline().strip())"))
    assert code == 0
    assert "Traceback" not in shown
    assert "error" not in shown


def test_the_exit_code_is_the_commands(golden: Unpacked, tmp_path: Path) -> None:
    code, _shown = at_terminal("check", golden("crash"), PAGER=pager(tmp_path, KEEPS))
    assert code == 1
    assert "abort-present" in (tmp_path / "seen").read_text()


def test_what_writes_is_not_paged(golden_copy: Unpacked, tmp_path: Path) -> None:
    code, shown = at_terminal("recover", golden_copy("crash"), typed="y\n", PAGER=pager(tmp_path, KEEPS))
    assert (code, "Done:" in shown) == (0, True)
    assert not (tmp_path / "seen").exists()


@pytest.mark.parametrize("option", ["--dry-run", "-n"])
def test_a_plan_that_is_only_shown_is_paged(option: str, golden: Unpacked, tmp_path: Path) -> None:
    code, shown = at_terminal("recover", golden("crash"), option, PAGER=pager(tmp_path, KEEPS))
    assert code == 1
    assert "Plan:" in (tmp_path / "seen").read_text()
    assert "shown by the pager" in shown


def test_a_pipe_has_no_pager_and_may_be_told_so(golden: Unpacked) -> None:
    assert process("explain", "--no-pager").out == process("explain").out
    after = process("explain", "--", "--no-pager")
    assert (after.code, after.err.startswith("error: ")) == (2, True)
