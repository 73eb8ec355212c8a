"""User defaults in the environment and in a file; the command line overrides both."""

import json
from pathlib import Path

import pytest

from rmqtool.cli.defaults import OPTIONS, read
from rmqtool.cli.framework.options import Body, Output
from rmqtool.cli.render.times import parse_time, time_text, use_zone, zone_of
from rmqtool.errors import BadValue, RmqError
from tests.cli.running import process, rmqtool
from tests.cli.test_options import OPTIONS as ALL_OPTIONS
from tests.conftest import Unpacked

QUERY = ["query-key", "STORE", "Orders", "user-9"]


def words(store: Path, line: list[str]) -> list[object]:
    return [store if word == "STORE" else word for word in line]


def test_what_can_be_set_is_an_option_that_asks_and_writes_nothing() -> None:
    assert set(OPTIONS) == {"output", "body", "engine", "broker-conf", "tz", "progress"}
    assert {f"--{name}" for name in OPTIONS} <= set(ALL_OPTIONS)
    assert (OPTIONS["output"], OPTIONS["body"]) == (tuple(Output), tuple(Body))


@pytest.mark.parametrize("line", [QUERY, ["commitlog", "dump", "STORE", "--limit", "2"], ["info", "STORE"]])
def test_the_command_line_then_the_environment_then_the_file(
    line: list[str], golden: Unpacked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = words(golden("broker"), line)
    plain = {form: rmqtool(*asked, "-o", form) for form in ("text", "table", "json", "ndjson", "csv")}
    (tmp_path / "rmqtool").mkdir()
    (tmp_path / "rmqtool" / "config.toml").write_text('output = "ndjson"\n')
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("RMQTOOL_CONFIG")
    assert rmqtool(*asked) == plain["ndjson"]
    monkeypatch.setenv("RMQTOOL_OUTPUT", "csv")
    assert rmqtool(*asked) == plain["csv"]
    assert rmqtool(*asked, "-o", "table") == plain["table"]
    assert process(*asked) == plain["csv"]
    monkeypatch.setenv("RMQTOOL_CONFIG", "")
    monkeypatch.setenv("RMQTOOL_OUTPUT", "")
    assert rmqtool(*asked) == plain["text"]


def test_bodies(golden: Unpacked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RMQTOOL_BODY", "none")
    for line in (QUERY, ["commitlog", "dump", "STORE", "--limit", "2"]):
        asked = [*words(golden("broker"), line), "-o", "ndjson"]
        assert all(json.loads(row)["bodyEncoding"] == "none" for row in rmqtool(*asked).out.splitlines())
        shown = rmqtool(*asked, "--body", "hex").out.splitlines()
        assert all(json.loads(row)["bodyEncoding"] == "hex" for row in shown)


def test_the_rules(golden: Unpacked, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = ["query-time", golden("broker"), "Orders", "3", "1795206885s", "-o", "csv"]
    before = rmqtool(*asked, "--engine", "5.3")
    monkeypatch.setenv("RMQTOOL_ENGINE", "5.3")
    assert rmqtool(*asked) == before != rmqtool(*asked, "--engine", "4.9")


def test_the_broker_s_properties(golden: Unpacked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    conf = tmp_path / "broker.conf"
    conf.mkdir()  # so that it cannot be read
    (tmp_path / "own.toml").write_text('broker-conf = "broker.conf"\n')
    for name, value in (("RMQTOOL_BROKER_CONF", conf), ("RMQTOOL_CONFIG", tmp_path / "own.toml")):
        with monkeypatch.context() as patched:
            patched.setenv(name, str(value))
            for line in (QUERY, ["info", "STORE"]):
                result = rmqtool(*words(golden("broker"), line))
                assert (result.code, str(conf) in result.err) == (3, True)
            # what takes none of them does without
            assert rmqtool("explain", "cq-missing").code == 0


def test_errors_are_in_the_form_of_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RMQTOOL_OUTPUT", "json")
    told = rmqtool("info", "/nowhere")
    assert json.loads(told.err)["exitCode"] == told.code == 3
    assert rmqtool("info", "/nowhere", "-o", "csv").err.startswith("error: ")
    monkeypatch.setenv("RMQTOOL_OUTPUT", "xml")
    told = rmqtool("info", "/nowhere")
    assert (told.code, told.err) == (
        2, "error: RMQTOOL_OUTPUT: 'xml' is not one of text, table, json, ndjson, csv\n",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("text", "code", "part"),
    [
        ("output = 5", 2, "output is not a string"),
        ('output = "xml"', 2, "output: 'xml' is not one of"),
        ('yes = "true"', 2, "'yes' cannot have a default"),
        ("output =", 2, "not TOML"),
        ('tz = "Mars/Base"', 2, "'Mars/Base' is not a time zone"),
        ('tz = "../../etc/passwd"', 2, "is not a time zone"),
        ("\udcff", 2, "not TOML"),
        ("a = " + "[" * 5000, 2, "not TOML"),
        (None, 3, "no such file"),
    ],
)
def test_a_file_that_makes_no_sense(
    text: str | None, code: int, part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "config.toml"
    if text is not None:
        path.write_bytes(text.encode("utf-8", "surrogateescape"))
    monkeypatch.setenv("RMQTOOL_CONFIG", str(path))
    result = rmqtool("info", "/nowhere")
    assert (result.code, result.out) == (code, "")
    assert result.err.startswith(f"error: {path}: ")
    assert part in result.err
    for arguments in (["--help"], ["info", "--help"], ["--version"]):  # whoever is stuck gets help all the same
        assert rmqtool(*arguments).code == 0


def test_a_directory_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(RmqError):
        read({"RMQTOOL_CONFIG": str(tmp_path)})
    assert read({}) == {}
    assert read({"HOME": str(tmp_path)}) == {}


ZONES = [("Asia/Shanghai", "+08:00", 8 * 60), ("-03:30", "-03:30", -210), ("UTC", "Z", 0)]


@pytest.mark.parametrize(("name", "end", "minutes"), ZONES)
def test_times_are_read_and_shown_in_a_zone(name: str, end: str, minutes: int) -> None:
    millis = 1_795_206_885_011
    try:
        use_zone(name)
        shown = time_text(millis)
        assert shown.endswith(f".011{end}")
        assert parse_time(shown) == millis
        assert parse_time(shown.removesuffix(end)) == millis
        assert parse_time("2026-11-20T20:34:45.011Z") == millis
        use_zone(None)
        assert parse_time(shown.removesuffix(end)) == millis + minutes * 60_000
        assert time_text(1 << 60) == str(1 << 60)
        use_zone(name)
        assert time_text(1 << 60) == str(1 << 60)
    finally:
        use_zone(None)


def test_tz_is_for_people_and_machine_output_stays(golden: Unpacked, monkeypatch: pytest.MonkeyPatch) -> None:
    line = words(golden("broker"), QUERY)
    plain = rmqtool(*line)
    there = rmqtool(*line, "--tz", "Asia/Shanghai")
    assert "2026-11-20 20:3" in plain.out
    assert "2026-11-21 04:3" in there.out
    assert "+08:00" in there.out
    assert rmqtool(*line, "-o", "json", "--tz", "Asia/Shanghai") == rmqtool(*line, "-o", "json")
    monkeypatch.setenv("RMQTOOL_TZ", "Asia/Shanghai")
    assert rmqtool(*line) == there
    assert rmqtool(*line, "--tz", "UTC") == plain
    assert rmqtool(*line, "--tz", "nowhere").code == 2
    counted = rmqtool("commitlog", "dump", golden("broker"), "--until", "2026-11-21T04:34:45", "-o", "csv").out
    assert counted == rmqtool(
        "commitlog", "dump", golden("broker"), "--until", "2026-11-20T20:34:45Z", "-o", "csv", "--tz", "UTC"
    ).out  # fmt: skip
    assert counted.count("\n") > 1


def test_a_zone_of_no_name() -> None:
    for name in ("x", "+8", "+25:00", "Asia", "", "a" * 5000, "a\0b"):
        with pytest.raises(BadValue):
            zone_of(name)
