"""Offset files of millions of entries: each command that reads one takes at most ten times its size."""

import subprocess
import sys
from pathlib import Path

import pytest

from rmqtool import NewMessage, Store
from rmqtool.cli.render import output
from rmqtool.contract import PlainRows
from rmqtool.store.check.common.findings import MOST
from tests.amounts import by_turns
from tests.cli.running import ROOT, rmqtool
from tests.conftest import Unpacked

GROUPS, QUEUES = 10_000, 16
MOST_CALLS = 8.0  # of Python functions for each offset
COMMANDS = (
    ("info",), ("check",), ("group", "list"), ("group", "lag"), ("group", "lag", "--by", "group"), ("group", "offsets"),
    ("topic", "list"), ("topic", "unused"), ("offsets",), ("recover", "--dry-run"), ("report", "html", "{out}"),
    ("salvage", "{out}"), ("export", "{out}"),
)  # fmt: skip


def offsets_of(groups: int, queues_of: int = QUEUES) -> str:
    queues = [",".join(f"{q}:{n * 7919 % 1_000_000}" for q in range(queues_of)) for n in range(groups)]
    tables = (f'"Topic-{n % 50:02d}@consumer-group-{n:06d}":{{{queues[n]}\n\t\t}}' for n in range(groups))
    return '{\n\t"offsetTable":{\n\t\t' + ",\n\t\t".join(tables) + "\n\t}\n}"  # as brokers write it


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("large") / "store"
    with Store.create(path) as made:
        made.append_many([NewMessage(topic="Topic-00", queue_id=n % QUEUES, body=b"x") for n in range(64)])
    return path


def peak(store: Path, *args: str) -> int:
    """Peak memory of a process in KiB."""
    out = store.parent / "out"
    subprocess.run(["rm", "-rf", out], check=True)
    args = tuple(word.format(out=out) for word in args)
    at = 2 if args[0] in ("group", "topic", "report") else 1
    script = (
        "import sys\n"
        "from rmqtool.main import _run\n"
        "from tests.bench.measure import peak_rss\n"  # a parent's rusage would count its own memory, too
        "code = _run(sys.argv[1:])\n"
        "print(peak_rss() >> 10, file=sys.stderr)\n"
        "sys.exit(code)"
    )
    command = [sys.executable, "-c", script, *args[:at], str(store), *args[at:]]
    child = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, cwd=ROOT)
    assert child.returncode in (0, 1), child.stderr
    return int(child.stderr.splitlines()[-1])


@by_turns(13)
@pytest.mark.parametrize("queues", [QUEUES, 3, 1])
@pytest.mark.parametrize("args", COMMANDS, ids=" ".join)
def test_ten_times_the_file_at_most(store: Path, args: tuple[str, ...], queues: int) -> None:
    path = store / "config" / "consumerOffset.json"
    path.write_text(offsets_of(10, queues))
    least = peak(store, *args)
    path.write_text(offsets_of(GROUPS * QUEUES // queues, queues))
    assert (peak(store, *args) - least) * 1024 <= 10 * path.stat().st_size


@by_turns(3)
@pytest.mark.parametrize("form", ["text", "table", "csv", "ndjson", "json"])
@pytest.mark.parametrize("args", [("group", "lag"), ("offsets",), ("group", "offsets")], ids=" ".join)
def test_an_offset_costs_few_calls(store: Path, args: tuple[str, ...], form: str) -> None:
    """Counted, as times depend on the machine: an object and a line for each offset took 11 to 17 calls."""
    calls = {}
    for groups in (1000, 2000):
        (store / "config" / "consumerOffset.json").write_text(offsets_of(groups))
        count = 0

        def count_call(_frame: object, event: str, _arg: object) -> None:
            nonlocal count
            count += event == "call"

        sys.setprofile(count_call)
        try:
            result = rmqtool(*args, store, "--output", form)
        finally:
            sys.setprofile(None)
        assert result.out.count("consumer-group-") == groups * QUEUES
        calls[groups] = count
    assert (calls[2000] - calls[1000]) / (1000 * QUEUES) < MOST_CALLS


@pytest.mark.parametrize("form", ["text", "table", "csv", "ndjson", "json"])
@pytest.mark.parametrize(
    "args", [("group", "lag"), ("offsets",), ("group", "offsets"), ("group", "lag", "--by", "topic")], ids=" ".join
)
def test_rows_by_the_thousand_are_those_one_by_one(
    args: tuple[str, ...], form: str, golden: Unpacked, monkeypatch: pytest.MonkeyPatch
) -> None:
    together = rmqtool(*args, golden("broker"), "--output", form)
    for writer in (output.NdjsonWriter, output.JsonWriter, output.CsvWriter, output.TableWriter):

        def write(self: output.Writer, rows: PlainRows) -> None:
            for row in rows.dicts():
                self.row(row)

        monkeypatch.setattr(writer, "plain_rows", write)
    assert rmqtool(*args, golden("broker"), "--output", form) == together
    assert together.out.count("lab-") >= 9


def test_findings_are_listed_up_to_a_bound_and_counted(store: Path) -> None:
    topics = MOST // QUEUES + 10
    tables = (f'"Gone-{n}@group":{{{",".join(f"{q}:5" for q in range(QUEUES))}}}' for n in range(topics))
    (store / "config" / "consumerOffset.json").write_text('{"offsetTable":{' + ",".join(tables) + "}}")
    result = rmqtool("check", store, "--output", "ndjson")
    rows = [line for line in result.out.splitlines() if '"offset-ahead"' in line]
    assert len(rows) == MOST + 1
    assert f'"count":{topics * QUEUES - MOST},' in rows[-1].replace(" ", "")
    assert '"actual":"160morelikethosebefore"' in rows[-1].replace(" ", "")
