"""Completion: candidates in each shell's format, without loading the command line."""

import os
import pty
import re
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from rmqtool.admin.doctor.codes import CODES as CLUSTER_CODES
from rmqtool.cli.commands import COMMANDS
from rmqtool.cli.man.manual import Page
from rmqtool.cli.startup import completing
from rmqtool.cli.startup.completing import CHOICES, VALUES, candidates
from rmqtool.store.check.codes.all import CODES
from tests.cli.running import RMQTOOL, ROOT, Result, process
from tests.cli.test_help import commands, top_level
from tests.conftest import Unpacked

KINDS = {"TOPIC": "topic", "GROUP": "group", "NEWGROUP": "group", "QUEUE": "queue", "[CODE]": "code"}
KINDS |= {"STORE": "store", "PART...": "part...", "[TOPIC]": "topic"}
KNOWN = {"page", *KINDS.values(), "config-file"}


def stored() -> dict[str, Any]:
    """The commands that read a store, or nothing: topics and groups of live clusters are not completed."""
    return {name: command for name, command in commands().items() if not COMMANDS[name].module.startswith("live.")}


def ask(shell: str, line: str, **more: str) -> Result:
    """The completion of a line at its end."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith("_")}
    args = line.split(" ")
    asked = {"COMP_WORDS": line, "COMP_CWORD": str(len(args) - 1), "_TYPER_COMPLETE_ARGS": line}
    action = {"_TYPER_COMPLETE_FISH_ACTION": "get-args", **more}
    return process(env={**plain, **asked, **action, "_RMQTOOL_COMPLETE": f"complete_{shell}"})


def test_the_arguments_are_those_of_the_commands() -> None:
    for name, command in stored().items():
        given = [parameter for parameter in command.params if parameter.param_type_name == "argument"]
        kinds = tuple(
            parameter.metavar.strip("[]").lower()
            if parameter.name.endswith("_word")
            else KINDS.get(parameter.metavar, "")
            for parameter in given
        )
        if name == "config":
            kinds = ("store", "config-file")
        if name == "manual":
            kinds = ("page",)
        listed = tuple(kind if kind in KNOWN else "" for kind in COMMANDS[name].arguments)
        assert listed == kinds, name


def test_the_options_are_those_of_the_commands() -> None:
    flags = {"--help", "-h", "--version", "--no-pager"}
    values: set[str] = set()
    for command in commands().values():
        for parameter in command.params:
            if parameter.param_type_name == "option":
                (flags if parameter.is_flag else values).update(parameter.opts, parameter.secondary_opts)
    assert flags == completing._flags()
    assert not flags & values
    assert VALUES.keys() | CHOICES.keys() <= values


def test_every_command_is_offered() -> None:
    assert set(candidates([], "")) == set(top_level())
    for name, command in top_level().items():
        inner = getattr(command, "commands", None)
        if inner is not None:
            assert set(candidates([name], "")) == set(inner)


def test_names_of_a_store(golden: Unpacked) -> None:
    store = str(golden("broker"))
    topics = {path.name for path in (golden("broker") / "consumequeue").iterdir()}
    for args in (["query-key", store], ["topic", "show", store], ["commitlog", "dump", store, "--limit", "3", "-t"]):
        assert set(candidates(args, "")) >= topics
    for args in (
        ["group", "reset", store],
        ["group", "clone", store, "x"],
        ["group", "lag", store, "--all", "--group"],
    ):
        assert "lab-consumer" in set(candidates(args, ""))
    assert set(candidates(["query-offset", store, "Orders"], "")) == {"0", "1", "2", "3"}
    assert set(candidates(["explain"], "")) == {*CODES, *CLUSTER_CODES}
    assert "topics.json" in set(candidates(["config", store], ""))
    assert candidates(["info", store, "-o"], "") == ("text", "table", "json", "ndjson", "csv")
    for args in (["query-key", "/nowhere"], ["group", "reset", "/dev/null"], ["query-time", "", "x"]):
        assert list(candidates(args, "")) == []
    for args in (["info"], ["group", "lag"], ["group", "lag", "-g"], ["append", store], ["info", store, "--tz"]):
        assert list(candidates(args, "")) == []
    for args, chosen in (
        (["check", store, "--severity"], {"error", "warning", "info"}),
        (["dump-to-parquet", store, "out", "--engine"], {"spark", "local"}),
        (
            ["rebuild", store, "index"],
            {"consumequeue", "index", "checkpoint", "config", "timer", "compaction", "files", "tiered-metadata"},
        ),
        (["manual"], {page.value for page in Page}),
    ):
        assert set(candidates(args, "")) == chosen
    assert set(candidates(["info", store], "-")) >= {"--output", "--tz", "-o"}
    assert set(candidates([], "-")) == {"--help", "--version"}
    assert list(candidates(["no-such-command"], "-")) == []


def test_a_hostile_store(golden_copy: Unpacked) -> None:
    store = golden_copy("broker")
    (store / "config" / "topics.json").write_bytes(b"{")
    (store / "config" / "consumerOffset.json").write_bytes(b"\xff")
    (store / "consumequeue" / "$(touch x)`y`'").mkdir()
    (store / "consumequeue" / "\x1b[2J").mkdir()
    (store / "consumequeue" / "a|reboot").mkdir()
    (store / "consumequeue" / "a:b").mkdir()
    line = f"rmqtool query-key {store} "
    for shell in ("bash", "zsh", "fish"):
        told = ask(shell, line).out
        assert "Orders" in told
        assert not set(told.removeprefix("_arguments '*: :((").removesuffix("))'\n")) & set("\x1b$`'|()")
    assert "a\\:b" in ask("zsh", line).out
    assert ask("bash", f"rmqtool group reset {store} ").err == ""


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_shells(shell: str, golden: Unpacked) -> None:
    store = golden("broker")
    for line, expected, other in (
        ("rmqtool query-", {"query-key", "query-id", "query-offset", "query-time"}, "recover"),
        (f"rmqtool query-key {store} Or", {"Orders"}, "Delayed"),
        (f"rmqtool query-key '{store}' Or", {"Orders"}, "Delayed"),
        (f"rmqtool group lag {store} -g lab-c", {"lab-consumer"}, "Orders"),
        ("rmqtool explain cq-mis", {"cq-missing"}, "log-"),
        ("rmqtool info --out", {"--output"}, "--body"),
        ("rmqtool commitlog dump --queue-", {"--queue-offset"}, "--body"),
        ("rmqtool manual emer", {"emergencies"}, "sql"),
    ):
        told = ask(shell, line)
        assert (told.code, told.err) == (0, "")
        words = set(re.findall(r"[\w%-]+", told.out))
        assert words >= expected
        assert other not in words
    files = ask(shell, "rmqtool info ")
    assert files.out.strip() == ("_files" if shell == "zsh" else "")
    if shell == "fish":
        for line, code in (("rmqtool info ", 1), ("rmqtool inf", 0), (f"rmqtool query-key {store} Or", 0)):
            assert ask(shell, line, _TYPER_COMPLETE_FISH_ACTION="is-args").code == code


def test_in_bash_itself(golden: Unpacked, tmp_path: Path) -> None:
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    program = bin_folder / "rmqtool"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m rmqtool.main "$@"\n')
    program.chmod(0o755)
    environment = {**os.environ, "PATH": f"{bin_folder}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    script = process(env={**environment, "_RMQTOOL_COMPLETE": "source_bash"}).out
    function = re.search(r"-F (\S+) rmqtool", script)
    assert function
    store = golden("broker")
    (tmp_path / "try.sh").write_text(
        f"{script}\nCOMP_WORDS=(rmqtool query-key '{store}' Or)\nCOMP_CWORD=3\n{function[1]} rmqtool\n"
        'printf "%s\\n" "${COMPREPLY[@]}"\n'
    )
    result = subprocess.run(
        ["bash", str(tmp_path / "try.sh")], capture_output=True, text=True, env=environment, check=True
    )
    assert result.stdout == "Orders\n"


@pytest.mark.parametrize(
    "line",
    [
        "rmqtool query-",
        "rmqtool query-key STORE Or",
        "rmqtool group lag STORE -g l",
        "rmqtool info --ou",
        "rmqtool check STORE --severity e",
        "rmqtool rebuild STORE i",
        "rmqtool manual emer",
        "rmqtool info STO",
        "rmqtool append STORE --broker-conf x",
    ],
)
def test_a_key_loads_no_command_line(line: str, golden: Unpacked) -> None:
    line = line.replace("STORE", str(golden("broker")))
    script = (
        "import sys\nfrom rmqtool.main import _run\n_run([])\n"
        "print(*sorted({'typer', 'click', 'numpy', 'rich', 'pyarrow'} & set(sys.modules)), file=sys.stderr)"
    )
    environment = {
        **os.environ, "COMP_WORDS": line, "COMP_CWORD": str(line.count(" ")), "_RMQTOOL_COMPLETE": "complete_bash",
    }  # fmt: skip
    result = subprocess.run(
        [RMQTOOL[0], "-c", script], capture_output=True, text=True, env=environment, cwd=ROOT, check=True
    )
    assert result.stderr == "\n"
    assert bool(result.stdout) == (line.split()[-1] not in ("STO", "x"))  # files are the shell's to find


def zsh_or_fish(shell: str) -> str:
    path = shutil.which(shell)
    if path is None:
        pytest.skip(f"{shell} is not on this machine")
    return path


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """The environment of a shell with the program in its PATH."""
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    program = bin_folder / "rmqtool"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m rmqtool.main "$@"\n')
    program.chmod(0o755)
    path = f"{bin_folder}:{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), "HOME": str(tmp_path), "TERM": "dumb"}


ASKED = {
    "query-key STORE Or": "Orders",
    "group lag STORE -g lab-c": "lab-consumer",
    "explain cq-mis": "cq-missing",
    "commitlog dump STORE --queue-": "--queue-offset",
    "config STORE topi": "topics.json",
}


@pytest.mark.parametrize("asked", ASKED)
def test_in_fish_itself(asked: str, golden: Unpacked, environment: dict[str, str]) -> None:
    fish = zsh_or_fish("fish")
    script = process(env={**environment, "_RMQTOOL_COMPLETE": "source_fish"}).out
    line = "rmqtool " + asked.replace("STORE", str(golden("broker")))
    result = subprocess.run(
        [fish, "--no-config", "-c", f"{script}\ncomplete -C '{line}'"],
        capture_output=True, text=True, env=environment, check=True,
    )  # fmt: skip
    assert ASKED[asked] in [answer.split("\t")[0] for answer in result.stdout.splitlines()]


@pytest.mark.parametrize("asked", ASKED)
def test_in_zsh_itself(asked: str, golden: Unpacked, environment: dict[str, str], tmp_path: Path) -> None:
    """Type a line and press Tab; the line is then completed."""
    zsh = zsh_or_fish("zsh")
    script = process(env={**environment, "_RMQTOOL_COMPLETE": "source_zsh"}).out
    (tmp_path / ".zshrc").write_text(
        f"PS1='ready> '\nautoload -U compinit\ncompinit -u -D\n{script}\n"
        "show() { print -r -- \"LINE<$BUFFER>\" }\nzle -N show\nbindkey '^T' show\n"
    )
    store = golden("broker")
    line = "rmqtool " + asked.replace("STORE", str(store))
    ours, theirs = pty.openpty()
    shell = subprocess.Popen(
        [zsh, "-i"], stdin=theirs, stdout=theirs, stderr=theirs, env=environment, start_new_session=True
    )
    os.close(theirs)
    try:
        seen = until(ours, b"ready> ")
        os.write(ours, line.encode() + b"\t\x14")
        seen = until(ours, b"LINE<", b">")
        assert ASKED[asked] in seen.decode()
    finally:
        os.close(ours)
        shell.kill()
        shell.wait()


def until(terminal: int, *marks: bytes) -> bytes:
    """Read from a terminal until these texts have appeared, in order."""
    seen, end = b"", time.monotonic() + 30
    while time.monotonic() < end:
        if select.select([terminal], [], [], 1)[0]:
            seen += os.read(terminal, 4096)
        rest = seen
        for mark in marks:
            _before, mark_read, rest = rest.partition(mark)
            if not mark_read:
                break
        else:
            return seen.partition(marks[0])[2]
    raise AssertionError(seen)


def test_nobody_asks() -> None:
    assert not completing.complete()
