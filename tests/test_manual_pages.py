"""Statements of the manual about other programs: shells, cron, systemd, containers, mqadmin, the benches."""

import re
import shlex
import shutil
import subprocess
from inspect import getsource
from pathlib import Path

import pytest

from tests import api_page, readme, settings_page
from tests.bench.measure import report_logs
from tests.cli.test_help import check_example

BENCH = re.compile(r"^python (?:-m tests\.bench\.(\w+)|tests/bench/(\w+)\.py)(.*)$", re.MULTILINE)
needs_systemd = pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="no systemd-analyze")


def page(name: str) -> str:
    return readme.PAGES[name].read_text(encoding="utf-8")


def test_the_api_reference_is_as_the_docstrings_are() -> None:
    assert page("api") == api_page.page(), "run python -m tests.api_page"


def test_the_table_of_settings_is_as_the_data_are() -> None:
    assert page("settings") == settings_page.page(), "run python -m tests.settings_page"
    assert "| `enableAcceleratedRecovery` | boolean | 5.4 | `false` |" in page("settings")
    assert "| `checkCommitLogOffsetOnRecover` | boolean | 5.5 | `false` |" in page("settings")


def files_of(name: str) -> dict[str, str]:
    """Files written by the shell lines of a page."""
    return dict(re.findall(r"^cat > (\S+) <<'EOF'\n(.*?)^EOF$", page(name), re.MULTILINE | re.DOTALL))


@pytest.mark.parametrize("name", readme.PAGES)
def test_shell_lines_are_good_shell(name: str) -> None:
    for block in readme.RECIPE.findall(page(name)):
        checked = subprocess.run(["bash", "-n"], input=block, capture_output=True, text=True, check=False)
        if not re.match(r"#? ?[\d*m]+ [\d*h]+ ", block):  # lines of a crontab
            assert (checked.returncode, checked.stderr) == (0, ""), block


def test_a_commands_counterpart_of_mqadmin_parses() -> None:
    rows = re.findall(r"^\| (`\w.*?) \| (.*?) \|(.*?)\|$", page("mqadmin"), re.MULTILINE)
    assert len(rows) > 25
    for _theirs, ours, _difference in rows:
        lines = re.findall(r"`(rmqtool [^`]*)`", ours)
        assert lines or ours in ("not there", "the broker's own file"), ours
        for line in lines:
            check_example(line.replace("ID", "FD00") if line.startswith("rmqtool query-id") else line)


def test_lines_of_a_crontab_have_five_times_a_user_and_a_command() -> None:
    lines = re.findall(r"^[\d*]+ [\d*]+ .*$", page("installing"), re.MULTILINE)
    assert len(lines) == 2
    for line in lines:
        minute, hour, *days, user, command = line.split(None, 6)
        assert 0 <= int(minute) < 60
        assert 0 <= int(hour) < 24
        assert days == ["*"] * 3
        assert user == "rocketmq"
        assert "%" not in command, "cron takes it for the end of a line"
        match = re.search(r"rmqtool [^)]*?(?= 2>|$)", command)
        assert match
        check_example(match[0])


@pytest.mark.parametrize("clean", [True, False])
def test_the_cron_line_speaks_only_when_there_is_something_to_say(clean: bool, tmp_path: Path) -> None:
    readme.prepare(tmp_path)
    (line,) = re.findall(r"^\d.*(said=.*)$", page("installing"), re.MULTILINE)
    store = tmp_path / ("store" if clean else "crashed")
    result = subprocess.run(
        ["sh", "-c", line.replace("/data/store", str(store))],
        env=readme.environment(), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert result.stderr == ""
    assert ("cq-no-message" in result.stdout) is not clean
    assert bool(result.stdout) is not clean


def test_units_start_commands_that_parse() -> None:
    units = {path: text for path, text in files_of("installing").items() if path.startswith("/etc/systemd/system/")}
    assert len(units) == 3
    for path, text in units.items():
        for command in re.findall(r"^ExecStart=/usr/local/bin/(.*)$", text, re.MULTILINE):
            check_example(command)
        assert ("ExecStart=" in text) == path.endswith(".service")


@needs_systemd
def test_systemd_finds_nothing_wrong_in_the_units(tmp_path: Path) -> None:
    program = shutil.which("true")
    for path, text in files_of("installing").items():
        if path.startswith("/etc/systemd/system/"):
            made = re.sub(r"^(ExecStart=)\S+", rf"\g<1>{program}", text, flags=re.MULTILINE)
            made = re.sub(r"^OnFailure=.*\n|^User=.*\n", "", made, flags=re.MULTILINE)  # of another machine
            (tmp_path / Path(path).name).write_text(made, encoding="utf-8")
    units = sorted(tmp_path.iterdir())
    result = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", *map(str, units)],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    ours = [line for line in result.stderr.splitlines() if "rmqtool" in line]
    assert ours == []


def test_the_container_is_made_from_what_is_here() -> None:
    text = files_of("installing")["Containerfile"]
    instructions = [line.split(" ", 1)[0] for line in text.replace("\\\n", " ").splitlines() if line]
    assert instructions == ["FROM", "COPY", "RUN", "FROM", "RUN", "ENV", "ENTRYPOINT"]
    version = re.search(r'^requires-python = ">=3\.(\d+)"$', (readme.ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert version
    images = re.findall(r"^FROM docker\.io/library/python:3\.(\d+)-slim( AS build)?$", text, re.MULTILINE)
    assert [more for _, more in images] == [" AS build", ""]
    assert all(int(minor) >= int(version[1]) for minor, _ in images)
    assert 'ENTRYPOINT ["rmqtool"]' in text
    runs = re.findall(r"^docker run (.*)$", page("installing").replace("\\\n", " "), re.MULTILINE)
    assert len(runs) == 2
    for line in runs:
        args = shlex.split(line)
        check_example(shlex.join(args[args.index("rmqtool") :]))


def test_the_commands_that_measure_are_there_with_their_options() -> None:
    commands = BENCH.findall(page("promises"))
    assert len(commands) == 6
    for module, script, options in commands:
        bench = readme.ROOT / "tests" / "bench"
        source = (bench / f"{module or script}.py").read_text(encoding="utf-8")
        if "report_logs(" in source:  # it has the options of what measures logs of several sizes
            source += getsource(report_logs)
        for option in re.findall(r"--[a-z-]+", options):
            assert f'add_argument("{option}"' in source, option
