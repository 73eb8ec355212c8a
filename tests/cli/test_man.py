"""manual --man: the man page has every command, option and exit code, and is good roff."""

import json
import re
import shutil
import subprocess
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest

from rmqtool.cli.man import roff
from rmqtool.cli.man.manual import Page
from tests.cli.running import rmqtool
from tests.cli.test_help import ALL, commands

SIGNS = {
    r"\-": "-",
    r"\(aq": "'",
    r"\(ga": "`",
    r"\(ha": "^",
    r"\(ti": "~",
    r"\(dq": '"',
    r"\&": "",
    r"\:": "",
    r"\e": "\\",
}
REQUESTS = {".TH", ".SH", ".SS", ".PP", ".TP", ".nf", ".fi", ".RS", ".RE", ".na", ".ad"}
needs_groff = pytest.mark.skipif(not shutil.which("groff"), reason="no groff")
needs_man = pytest.mark.skipif(not shutil.which("man"), reason="no man")


@cache
def source() -> str:
    result = rmqtool("manual", "--man")
    assert (result.code, result.err) == (0, "")
    return result.out


def plain(text: str) -> str:
    """Roff without fonts."""
    text = re.sub(r"\\f[BIR]", "", text)
    return re.sub(r"\\(?:\(..|.)", lambda match: SIGNS[match[0]], text)


def sections(text: str) -> dict[str, str]:
    parts = re.split(r'^\.SH "(.*)"$', text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def set_in_groff(text: str) -> str:
    """The page rendered for 400 columns, with whitespace collapsed."""
    result = subprocess.run(
        ["groff", "-man", "-Tascii", "-P-cbou", "-rLL=400n", "-rHY=0", "-ww"],
        input=text, capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert result.stderr == ""
    return " ".join(result.stdout.split())


def test_only_known_requests_and_signs() -> None:
    for line in source().splitlines():
        assert line, "a blank line is bad roff"
        if line.startswith("."):
            assert line.split(" ")[0] in REQUESTS, line
        plain(line)  # a KeyError for any other sign
    assert source().count(".RS") == source().count(".RE") == source().count(".nf") == source().count(".fi")


def test_every_tag_has_text() -> None:
    lines = source().splitlines()
    for (before, tag), (_, text) in pairwise(pairwise(lines)):
        if before == ".TP":
            assert not tag.startswith(".")
            assert not text.startswith(".")


def test_the_sections_that_readers_look_for() -> None:
    headings = sections(source())
    assert list(headings) == [
        "NAME", "SYNOPSIS", "DESCRIPTION", "EMERGENCIES", "COMMANDS", "EXIT STATUS", "FILES", "SEE ALSO",
    ]  # fmt: skip
    assert re.fullmatch(r"\nrmqtool - \S.*\n", plain(headings["NAME"]))  # what whatis and apropos read
    assert "rmqtool check STORE\n" in plain(headings["EMERGENCIES"])
    for topic in Page:
        assert f"rmqtool manual {topic}\n" in plain(headings["SEE ALSO"])


def test_every_command_is_there_with_all_that_its_help_says() -> None:
    parts = re.split(r'^\.SS "(.*)"$', sections(source())["COMMANDS"], flags=re.MULTILINE)
    told = {plain(name): plain(text) for name, text in zip(parts[1::2], parts[2::2], strict=True)}
    assert len(told) == len(ALL)
    for name, command in commands().items():
        heading, text = next((h, t) for h, t in told.items() if re.match(rf"{name}(?![a-z -])|{name} [^a-z]", h))
        for paragraph in (command.help or "").split("\n\n"):
            assert " ".join(paragraph.split()) in text, name
        assert (command.epilog or "").partition(": ")[2].splitlines()[0] in text
        for parameter in command.params:
            if parameter.name == "help" or getattr(parameter, "hidden", False):
                continue
            assert " ".join(parameter.help.split()) in text, (name, parameter.name)
            if parameter.param_type_name == "argument":
                assert parameter.metavar.strip("[]") in heading
                assert f"[{parameter.metavar.strip('[]')}" in heading or parameter.required
            for option in parameter.opts if parameter.param_type_name == "option" else []:
                assert re.search(rf"^(-+[a-zA-Z]+, )?{option}(,| |$)", text, re.MULTILINE), (name, option)


def test_every_exit_code_is_there_with_the_words_of_the_manual() -> None:
    page = rmqtool("manual", "machine-output").out
    rows = re.findall(r"^\| (\d+) \| (.+) \|$", page.split("## Exit codes")[1], re.MULTILINE)
    told = re.findall(r"^\.TP\n(\d+)\n(.+)$", plain(sections(source())["EXIT STATUS"]), re.MULTILINE)
    assert told == rows
    assert {code for code, _ in told} == {"0", "1", "2", "3", "4", "5", "6", "129", "130", "143"}


def test_machine_output_of_the_man_page() -> None:
    row = json.loads(rmqtool("manual", "--man", "-o", "json").out)
    assert (row["title"], row["text"]) == ("rmqtool(1)", source())


def test_the_man_page_takes_no_topic() -> None:
    result = rmqtool("manual", "--man", "sql")
    assert (result.code, result.out) == (2, "")
    assert result.err == "error: --man prints one page of all commands, and takes no topic\n"


@needs_groff
def test_groff_sets_it_without_a_warning_and_nothing_is_lost() -> None:
    shown = set_in_groff(source())
    for name, command in commands().items():
        for text in [
            command.help or "",
            *(parameter.help or "" for parameter in command.params if not getattr(parameter, "hidden", False)),
        ]:
            for paragraph in text.split("\n\n"):
                assert " ".join(paragraph.split()) in shown, name


@needs_groff
@pytest.mark.parametrize(
    "text",
    [
        ".start of a line",
        "'quote first",
        r"C:\n \fB \(aq \\",
        "--dry-run -n a-b",
        "`tick` ^hat ~tilde",
        '"quoted"',
        ".",
    ],
)
def test_any_text_comes_out_as_it_went_in(text: str) -> None:
    page = roff.title("t", 1, "t", "t")
    for made in (roff.paragraph(text), roff.tag_item(roff.bold(text), text), roff.example(text), roff.subsection(text)):
        assert text in set_in_groff(page + made)


@needs_man
def test_man_shows_it(tmp_path: Path) -> None:
    page = tmp_path / "rmqtool.1"
    page.write_text(source(), encoding="utf-8")
    result = subprocess.run(
        ["man", "-l", "--warnings", str(page)],
        env={"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8", "MANWIDTH": "100", "MANPAGER": "cat"},
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert result.stderr == ""
    assert result.stdout.startswith("RMQTOOL(1)")
    assert "dump-to-parquet STORE OUT [OPTIONS]" in result.stdout
