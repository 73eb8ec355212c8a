"""How append and import end: by a signal, with closed stdout, without input."""

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from rmqtool.cli.commands import COMMANDS, writes
from rmqtool.cli.framework.app import load
from tests.amounts import by_turns, every
from tests.cli.running import RMQTOOL, process
from tests.conftest import Unpacked
from tests.store.helpers import tree

pytestmark = pytest.mark.slow

SIGNALS = [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "store"
    assert process("init", path).code == 0
    return path


def count(store: Path) -> int:
    assert not (store / "abort").exists()
    assert process("check", store).code == 0
    return len(process("commitlog", "dump", store, "-o", "ndjson").out.splitlines())


def lines(number: int) -> bytes:
    return b"".join(b'{"topic": "t%d", "body": "%d"}\n' % (n % 3, n) for n in range(number))


def heeding() -> None:
    """Under nohup, or in a shell's background, some signals are ignored and stay ignored."""
    for number, _code in SIGNALS:
        signal.signal(number, signal.SIG_DFL)


def started(*args: object) -> Any:
    return subprocess.Popen(
        [*RMQTOOL, *map(str, args)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=heeding,
    )


@by_turns(2)
@pytest.mark.parametrize(("number", "code"), SIGNALS)
def test_a_signal_closes_the_store(number: int, code: int, store: Path) -> None:
    with started("append", store, "-o", "ndjson") as running:
        running.stdin.write(lines(10) + b'{"topic": "half a')
        running.stdin.flush()
        for _ in range(10):
            assert b"PUT_OK" in running.stdout.readline()
        assert (store / "abort").exists()
        running.send_signal(number)
        out, stderr = running.communicate(timeout=60)
    name = signal.Signals(number).name
    assert running.returncode == code
    assert out == b""
    upto = f"{name}: 10 messages appended up to line 10; what follows was not read"
    assert stderr.decode() == f"{upto}; to go on, begin with line 11\n"
    assert count(store) == 10


@pytest.mark.parametrize(("number", "code"), SIGNALS)
def test_a_signal_leaves_no_half_import(number: int, code: int, tmp_path: Path) -> None:
    with started("import", tmp_path / "new", "-", "-o", "ndjson") as running:
        running.stdin.write(lines(10))
        running.stdin.flush()
        assert b"PUT_OK" in running.stdout.readline()
        running.send_signal(number)
        _out, stderr = running.communicate(timeout=60)
    assert (running.returncode, stderr.decode()) == (code, f"{signal.Signals(number).name}: no store was made\n")
    assert list(tmp_path.iterdir()) == []


def test_a_signal_that_is_ignored_stays_so(store: Path) -> None:
    """As under nohup."""
    command = [*RMQTOOL, "append", str(store), "-o", "ndjson"]
    with subprocess.Popen(
        ["sh", "-c", 'trap "" HUP; exec "$@"', "sh", *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as running:
        assert running.stdin is not None
        assert running.stdout is not None
        for _ in range(2):
            running.stdin.write(lines(1))
            running.stdin.flush()
            assert b"PUT_OK" in running.stdout.readline()
            running.send_signal(signal.SIGHUP)
        running.stdin.close()
        assert running.wait(60) == 0
    assert count(store) == 2


def without_reader(*args: object, data: bytes = b"") -> tuple[int, str]:
    """Run with a closed stdout."""
    read, write = os.pipe()
    os.close(read)
    try:
        result = process(*args, input=data, stdin=None, capture_output=False, stdout=write, stderr=subprocess.PIPE)
    finally:
        os.close(write)
    return result.code, said(result.err)


def said(text: str) -> str:
    """The error message as text, also from JSON."""
    return f"error: {json.loads(text)['error']}\n" if text.startswith("{") else text


@by_turns(13)
@pytest.mark.parametrize("form", every(2, ["table", "json", "ndjson", "csv"]))
def test_nobody_reads_what_append_says(form: str, store: Path) -> None:
    given = 40_000
    code, message = without_reader("append", store, "-o", form, data=lines(given))
    kept = count(store)
    assert code == 3
    if form == "table":
        assert kept == given
        assert message == f"error: stdout: Broken pipe: {kept} messages appended, up to line {kept}; all was read\n"
    else:  # a header may be the first that fails
        assert kept < given
        known = f"{kept} messages appended, up to line {kept}; what follows was not read"
        assert message == f"error: stdout: Broken pipe: {known if kept else 'nothing was read'}\n"


def test_a_reader_that_has_seen_enough(store: Path) -> None:
    with started("append", store, "-o", "ndjson") as running:
        running.stdin.write(lines(1))
        running.stdin.flush()
        assert json.loads(running.stdout.readline())["line"] == 1
        running.stdout.close()
        running.stdin.write(lines(5))
        running.stdin.close()
        assert running.wait(60) == 3
        kept = count(store)
        assert 1 < kept <= 6
        assert f"{kept} messages appended, up to line {kept}; " in running.stderr.read().decode()


def test_nobody_reads_what_import_says(tmp_path: Path) -> None:
    code, message = without_reader("import", tmp_path / "new", "-", "-o", "ndjson", data=lines(5))
    assert code == 3
    assert message.startswith("error: stdout: Broken pipe: ")
    assert message.endswith("; no store was made\n")
    assert list(tmp_path.iterdir()) == []


def test_nobody_reads_what_other_commands_say(golden: Unpacked, golden_copy: Unpacked, tmp_path: Path) -> None:
    crashed = golden_copy("crash")
    assert without_reader("recover", crashed, "--dry-run", "-o", "json") == (0, "")
    assert (crashed / "abort").exists()
    text = "the command has done its work, but not all that it says of that could be written"
    done = 3, f"error: stdout: Broken pipe: {text}\n"
    assert without_reader("recover", crashed, "--yes", "-o", "json") == done
    assert not (crashed / "abort").exists()
    assert without_reader("init", tmp_path / "new") == done
    assert without_reader("run", tmp_path / "new", "--once", "-o", "json") == done
    code, told = without_reader("salvage", golden("clean"), "-", "--to", "ndjson")
    assert (code, told.splitlines()[-1]) == (3, "error: stdout: Broken pipe: not all messages are written")
    assert without_reader("commitlog", "dump", golden("clean")) == (0, "")


def test_every_command_that_asks_counts_as_writing() -> None:
    load()
    from typer.main import get_command

    from rmqtool.cli.framework.app import app

    named = set()
    for word, entry in get_command(app).commands.items():  # type: ignore[attr-defined]
        for name, inner in {
            word: entry,
            **{f"{word} {k}": v for k, v in getattr(entry, "commands", {}).items()},
        }.items():
            if any("--yes" in option.opts for option in inner.params):
                named.add(name)
    assert named
    assert all(COMMANDS[name].writes for name in named)
    assert writes(["recover", "s", "--yes"])
    assert not writes(["recover", "s", "--dry-run"])
    assert not writes(["truncate", "s", "2238", "-n"])
    assert not writes(["dlq", "list", "s"])


@by_turns(2)
def test_what_is_nothing_to_append(store: Path, tmp_path: Path) -> None:
    (tmp_path / "gz").write_bytes(b"\x1f\x8b\x08\x00" + os.urandom(5000))
    (tmp_path / "utf-16").write_bytes('{"topic": "t"}\n'.encode("utf-16"))
    (tmp_path / "latin").write_bytes('{"topic": "é"}\n'.encode("latin-1"))
    before = tree(store)
    for args, options, text in (
        ([], {"stdin": None, "preexec_fn": lambda: os.close(0)}, "stdin: is closed"),
        ([tmp_path], {}, f"{tmp_path}: is a directory"),
        ([tmp_path / "none"], {}, f"{tmp_path}/none: No such file"),
        ([tmp_path / "gz"], {}, f"{tmp_path}/gz: is not text"),
        ([tmp_path / "utf-16"], {}, f"{tmp_path}/utf-16: is not text"),
        ([tmp_path / "latin"], {}, f"{tmp_path}/latin: is not text"),
        ([], {"stdin": None, "input": (tmp_path / "gz").read_bytes()}, "stdin: is not text"),
    ):
        result = process("append", store, *args, **options)
        assert (result.code, result.out) == (3, "")
        assert result.err.startswith(f"error: {text}")
        assert len(result.err.splitlines()) == 1
        assert tree(store) == before


def test_import_of_nothing(tmp_path: Path) -> None:
    (tmp_path / "in.ndjson").write_text('{"body": "no topic"}\n{\n')
    result = process("import", tmp_path / "new", tmp_path / "in.ndjson")
    assert result.code == 1
    assert "none of 2 rows is taken; no store was made" in result.err.splitlines()
    assert process("import", tmp_path / "new", "-", stdin=None, preexec_fn=lambda: os.close(0)).code == 3
    assert [p.name for p in tmp_path.iterdir()] == ["in.ndjson"]


def test_no_file_of_a_store_gets_the_number_of_a_closed_stderr(store: Path) -> None:
    """Anything written to descriptor 2 must not end up in the file."""
    script = (
        "import os\n"
        "os.closerange(0, 3)\n"
        "from rmqtool import main\n"
        "import sys; sys.stdin = sys.stdout = sys.stderr = sys.__stdin__ = None\n"
        f"sys.argv = ['rmqtool', 'append', {str(store)!r}, {str(store.parent / 'in')!r}, '-o', 'ndjson']\n"
        "try: main.main()\n"
        "except SystemExit as end: os._exit(end.code if all(os.readlink(f'/proc/self/fd/{n}') == os.devnull "
        "for n in range(3)) else 99)"
    )
    (store.parent / "in").write_bytes(lines(5))
    assert subprocess.run([RMQTOOL[0], "-c", script], check=False).returncode == 0
    assert count(store) == 5
