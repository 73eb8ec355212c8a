"""The same content in every format, whole lines in pipes, nothing hostile on a terminal, pipes that close early."""

import csv
import io
import json
import os
import pty
import re
import select
import shlex
import signal
import subprocess
import time
import unicodedata
from pathlib import Path
from typing import Any

import pytest

from tests.amounts import by_turns
from tests.cli import hostile
from tests.cli.running import RMQTOOL, ROOT, process, rmqtool
from tests.conftest import Unpacked

pytestmark = [pytest.mark.slow, by_turns(3)]

_LINES = {
    "commitlog dump": "commitlog dump STORE",
    "commitlog dump base64": "commitlog dump STORE --body base64",
    "consumequeue dump": "consumequeue dump STORE",
    "index dump": "index dump STORE",
    "index dump --headers": "index dump STORE --headers",
    "offsets": "offsets STORE",
    "config": "config STORE",
    "query-offset": "query-offset STORE TOPIC 0 0 --max-msgs 32",
    "query-offset --status": "query-offset STORE TOPIC 0 0 --status",
    "query-key": "query-key STORE TOPIC KEY --scan",
    "query-id": "query-id STORE 7F00000100002A9F0000000000000000",
    "query-time": "query-time STORE TOPIC 0 now",
}
LISTINGS = {name: shlex.split(line) for name, line in _LINES.items()}
TO_BROKER = {"TOPIC": "Orders", "KEY": "user-9"}
TO_HOSTILE = {"TOPIC": "plain", "KEY": "k1"}
TEXTS = {**LISTINGS, "info": ["info", "STORE"], "checkpoint": ["checkpoint", "STORE"]}
ANSI = re.compile(r"\x1b\[[0-9;]*m")


@pytest.fixture(scope="module")
def nasty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The hostile store."""
    return hostile.make(tmp_path_factory.mktemp("hostile"))


def filled(args: list[str], store: Path, names: dict[str, str]) -> list[str]:
    return [str(store) if word == "STORE" else names.get(word, word) for word in args]


def csv_text(value: Any) -> str:
    """A JSON value as a CSV cell."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return " ".join(map(str, value))
    return str(value)


@pytest.mark.parametrize("name", LISTINGS)
@pytest.mark.parametrize("kind", ["broker", "hostile"])
def test_every_form_has_the_same_content(name: str, kind: str, golden: Unpacked, nasty: Path) -> None:
    names = TO_BROKER if kind == "broker" else TO_HOSTILE
    args = filled(LISTINGS[name], golden("broker") if kind == "broker" else nasty, names)
    if name == "query-time":
        args[-1] = "1800000000000"
    results = {form: rmqtool(*args, "-o", form) for form in ("ndjson", "json", "csv")}
    assert len({(result.code, result.err) for result in results.values()}) == 1
    lines = results["ndjson"].out.split("\n")
    assert lines.pop() == ""
    rows = [json.loads(line) for line in lines]
    assert json.loads(results["json"].out) == rows
    table = list(csv.reader(io.StringIO(results["csv"].out, newline=""), strict=True))
    header = table.pop(0)
    assert len(table) == len(rows)
    if kind == "broker":
        assert rows or name == "query-id"
    for row, cells in zip(rows, table, strict=True):
        assert set(row) <= set(header)
        for field, cell in zip(header, cells, strict=True):
            if isinstance(row.get(field), dict):
                assert json.loads(cell) == row[field]
            else:
                # what cannot be UTF-8 is spelled as an escape on the stream, in JSON as one of JSON's own
                assert cell == csv_text(row.get(field)).encode("utf-8", "backslashreplace").decode()


@pytest.mark.parametrize("name", TEXTS)
def test_nothing_hostile_reaches_a_terminal(name: str, nasty: Path) -> None:
    for names in [TO_HOSTILE] + [{**TO_HOSTILE, "TOPIC": os.fsdecode(topic)} for topic in hostile.TOPICS]:
        result = rmqtool(*filled(TEXTS[name], nasty, names))
        for text in (result.out, result.err):
            bad = [c for c in text if c != "\n" and (unicodedata.category(c) in ("Cc", "Zl", "Zp") or c == "\u202e")]
            assert not bad, (names, bad)


@pytest.mark.parametrize("args", [["commitlog", "dump"], ["config"], ["offsets"]])
def test_json_carries_control_characters_escaped(args: list[str], nasty: Path) -> None:
    more = ["topics.json"] if args == ["config"] else []
    for form in ("json", "ndjson"):
        out = rmqtool(*args, nasty, *more, "-o", form).out
        json.loads(out if form == "json" else "[" + out.strip().replace("\n", ",") + "]")
        assert not [c for c in out if c != "\n" and unicodedata.category(c) == "Cc"]


def test_hexdump_and_recovery_show_nothing_hostile(nasty: Path, tmp_path: Path) -> None:
    store = hostile.make(tmp_path)
    log = store / "commitlog" / f"{0:020d}"
    data = bytearray(log.read_bytes())
    data[60:64] = b"\xff" * 4  # the first record's times: nothing is wrong with that
    at = data.index(b"two\r\n")
    data[at] ^= 1  # its body's CRC
    log.write_bytes(data)
    (store / "abort").touch()
    for arguments in (
        ["commitlog", "hexdump", store],
        ["recover", store, "--dry-run"],
        ["recover", store, "--yes", "--accept-loss"],
    ):
        result = rmqtool(*arguments)
        assert result.out
        assert not [c for c in result.out + result.err if c != "\n" and unicodedata.category(c) in ("Cc", "Zl", "Zp")]


@pytest.mark.parametrize("name", TEXTS)
def test_a_table_in_a_pipe_is_whole(name: str, golden: Unpacked, nasty: Path) -> None:
    for store, names in ((golden("broker"), TO_BROKER), (nasty, TO_HOSTILE)):
        result = rmqtool(*filled(TEXTS[name], store, names))
        assert "…" not in result.out
        assert "\x1b" not in result.out


def test_a_recovery_plan_in_a_pipe_is_whole(golden: Unpacked, tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 200) / ("e" * 200)
    deep.mkdir(parents=True)
    store = deep / "store"
    store.symlink_to(golden("crash"))
    for arguments in (["recover", store, "--dry-run"], ["info", store]):
        for form in ("text", "table"):
            result = rmqtool(*arguments, "-o", form)
            assert "…" not in result.out
            whole = "".join(line.strip() for line in result.out.splitlines())
            assert arguments[0] != "info" or str(store) in (whole if form == "text" else result.out)


def test_long_bodies_are_whole_in_a_pipe(nasty: Path) -> None:
    assert "x" * 3000 in rmqtool("commitlog", "dump", nasty, "-o", "table").out


# -- streams that end early -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def big(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log far larger than a pipe's buffer: one file repeated, with corrected positions."""
    small = hostile.make(tmp_path_factory.mktemp("big"))
    first = small / "commitlog" / f"{0:020d}"
    data = bytearray(first.read_bytes())
    from formats.message.read import Record, read

    at, starts = 0, []
    while isinstance(record := read(memoryview(data), at, len(data)), Record):
        starts.append(at)
        at += record.total_size
    data[at : at + 8] = (len(data) - at).to_bytes(4, "big") + bytes.fromhex("cbd43194")
    for number in range(1, 100):
        base = number * len(data)
        for start in starts:
            data[start + 28 : start + 36] = (base + start).to_bytes(8, "big")
        (small / "commitlog" / f"{base:020d}").write_bytes(data)
    data[at:] = bytes(len(data) - at)
    for start in starts:
        data[start + 28 : start + 36] = start.to_bytes(8, "big")
    data[at : at + 8] = (len(data) - at).to_bytes(4, "big") + bytes.fromhex("cbd43194")
    first.write_bytes(data)
    return small


def test_the_big_store_is_big(big: Path) -> None:
    result = process("commitlog", "dump", big, "-o", "ndjson")
    assert (result.code, result.err) == (0, "")
    assert len(result.out) > 3_000_000


@pytest.mark.parametrize("args", [["-o", "ndjson"], ["-o", "json"], ["-o", "csv"], []])
def test_head_ends_a_dump_quickly_and_quietly(args: list[str], big: Path) -> None:
    with subprocess.Popen(
        [*RMQTOOL, "commitlog", "dump", str(big), *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT
    ) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        assert running.stdout.readline()
        running.stdout.close()
        assert running.stderr.read() == b""
        assert running.wait(20) == 0


def test_rows_come_before_the_log_is_read_to_its_end(big: Path) -> None:
    with subprocess.Popen(
        [*RMQTOOL, "commitlog", "dump", str(big), "-o", "ndjson"], stdout=subprocess.PIPE, cwd=ROOT
    ) as running:
        assert running.stdout is not None
        line = running.stdout.readline()
        assert json.loads(line)["physicalOffset"] == 0
        assert running.poll() is None  # it waits for whoever reads
        running.stdout.close()


def test_head_on_a_quick_query(big: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        for arguments in (["query-key", big, "plain", "k1", "--scan"], ["info", big], ["--help"]):
            result = process(*arguments, stdout=writer, capture_output=False, stderr=subprocess.PIPE)
            assert (result.code, result.err) == (0, ""), arguments
    finally:
        os.close(writer)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="only Linux has /dev/full")
@pytest.mark.parametrize("name", ["info", "commitlog dump", "query-key"])
def test_a_full_disk_is_one_line(name: str, nasty: Path) -> None:
    with open("/dev/full", "w") as full:
        args = filled(TEXTS[name], nasty, TO_HOSTILE)
        result = process(*args, stdout=full, capture_output=False, stderr=subprocess.PIPE)
    assert (result.code, result.err) == (3, "error: stdout: No space left on device\n")


def test_closed_streams_are_no_crash(nasty: Path) -> None:
    command = " ".join([*RMQTOOL, "info", str(nasty)])
    for redirect, code in ((">&-", 0), ("2>&-", 0), (">&- 2>&- <&-", 0)):
        result = subprocess.run(f"{command} {redirect}", shell=True, cwd=ROOT, capture_output=True, timeout=60)
        assert result.returncode == code
        assert b"Traceback" not in result.stderr


@pytest.mark.parametrize("form", ["ndjson", "json", "csv", "table"])
def test_interrupted(form: str, big: Path) -> None:
    with subprocess.Popen(
        [*RMQTOOL, "commitlog", "dump", str(big), "-o", form], stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT
    ) as running:
        assert running.stdout is not None
        running.stdout.readline()  # it runs, and soon waits for whoever reads
        running.send_signal(signal.SIGINT)
        _out, err = running.communicate(timeout=30)
    assert (running.returncode, err) == (130, b"")


def test_a_locale_without_utf8_still_gets_utf8(nasty: Path) -> None:
    environment = {
        **os.environ,
        "LC_ALL": "C",
        "PYTHONUTF8": "0",
        "PYTHONCOERCECLOCALE": "0",
        "PYTHONIOENCODING": "ascii",
    }
    for form in ("table", "ndjson", "csv"):
        result = process("commitlog", "dump", nasty, "-o", form, env=environment)
        assert "消息🙂" in result.out
        assert result.code == 0


# -- terminals --------------------------------------------------------------------------------------------------------


def on_terminal(args: list[str], environment: dict[str, str], typed: str = "", columns: int = 100) -> tuple[int, str]:
    """Exit code and terminal output of a run."""
    variables = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "TERM", "COLUMNS", "FORCE_COLOR")}
    main_end, program_end = pty.openpty()
    import fcntl
    import struct
    import termios

    fcntl.ioctl(program_end, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    with subprocess.Popen(
        [*RMQTOOL, *args],
        stdin=program_end,
        stdout=program_end,
        stderr=program_end,
        cwd=ROOT,
        env={**variables, "TERM": "xterm-256color", **environment},
        start_new_session=True,
    ) as running:
        os.close(program_end)
        if typed:
            os.write(main_end, typed.encode())
        shown = b""
        limit = time.monotonic() + 60
        while time.monotonic() < limit:
            ready, _, _ = select.select([main_end], [], [], 1)
            try:
                part = os.read(main_end, 1 << 16) if ready else None
            except OSError:  # the other end is closed
                break
            if part == b"":
                break
            shown += part or b""
        os.close(main_end)
        code = running.wait(20)
    return code, shown.decode("utf-8", "backslashreplace").replace("\r\n", "\n")


def cells(text: str) -> int:
    """Width of a line in terminal cells, without colours."""
    bare = ANSI.sub("", text)
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in bare)


@pytest.mark.parametrize("name", ["commitlog dump", "info"])
@pytest.mark.parametrize("environment", [{}, {"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_colour_on_a_terminal_unless_it_is_refused(name: str, environment: dict[str, str], golden: Unpacked) -> None:
    code, shown = on_terminal(filled(TEXTS[name], golden("clean"), TO_BROKER), environment)
    assert code == 0
    assert bool(ANSI.search(shown)) is (environment == {})
    assert "\x1b" not in ANSI.sub("", shown)


def test_a_terminal_gets_lines_that_fit(nasty: Path) -> None:
    code, shown = on_terminal(["commitlog", "dump", str(nasty)], {}, columns=170)
    assert code == 0
    lines = shown.splitlines()
    assert lines.pop() == "not shown: storeSize (--wide or --columns)"
    assert len(lines) == 1 + len(hostile.BODIES) * len(hostile.TOPICS)
    assert all(cells(line) <= 170 for line in lines)
    assert "…" in shown  # 3000 times x


def test_a_terminal_gets_nothing_hostile(nasty: Path) -> None:
    for name in ("commitlog dump", "info", "offsets"):
        _code, shown = on_terminal(filled(TEXTS[name], nasty, TO_HOSTILE), {})
        assert not [c for c in ANSI.sub("", shown) if c != "\n" and unicodedata.category(c) == "Cc"]


def test_recover_asks_on_a_terminal_and_takes_no_for_an_answer(golden_copy: Unpacked) -> None:
    store = golden_copy("crash")
    code, shown = on_terminal(["recover", str(store)], {}, "n\n")
    assert (code, "Plan:" in shown, "Do this?" in shown) == (4, True, True)
    assert "not confirmed: nothing was changed" in shown
    assert (store / "abort").exists()
    code, shown = on_terminal(["recover", str(store)], {}, "y\n")
    assert (code, "Done:" in shown) == (0, True)
    assert not (store / "abort").exists()
    code, shown = on_terminal(["recover", str(store)], {})
    assert (code, "Nothing to do" in shown, "Do this?" in shown) == (0, True, False)


def test_end_of_input_at_the_question_is_a_refusal(golden_copy: Unpacked) -> None:
    store = golden_copy("crash")
    code, shown = on_terminal(["recover", str(store)], {}, "\x04")
    assert code == 4
    assert "Traceback" not in shown
    assert (store / "abort").exists()
