"""Bad input to every command: one line on stderr, the documented exit code, no traceback, no hang."""

import os
import re
import shlex
import shutil
import socket
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests import goldens
from tests.amounts import by_turns
from tests.cli.odd_files import replace_by
from tests.cli.running import Result, rmqtool
from tests.cli.test_help import commands, live_only
from tests.conftest import Unpacked
from tests.store.helpers import tree

_CLUSTER = shlex.quote(str(Path(__file__).with_name("cluster.yaml")))
_LINES = {
    "info": "info STORE",
    "recover --dry-run": "recover STORE --dry-run",
    "recover --yes": "recover STORE --yes",
    "query-key": "query-key STORE Orders user-9",
    "query-key, not quick": "query-key STORE Orders user-9 --since 2000-01-01",
    "query-key --scan": "query-key STORE Orders 'no such key' --scan",
    "query-id": "query-id STORE FD0000000000000000000000000000020FB630946E09664347930066",
    "query-offset": "query-offset STORE Orders 0 0",
    "query-time": "query-time STORE Orders 0 1795206885011",
    "commitlog dump": "commitlog dump STORE",
    "commitlog hexdump": "commitlog hexdump STORE --offset 0",
    "consumequeue dump": "consumequeue dump STORE",
    "index dump": "index dump STORE",
    "index dump --headers": "index dump STORE --headers",
    "checkpoint": "checkpoint STORE",
    "offsets": "offsets STORE",
    "config": "config STORE",
    "config FILE": "config STORE topics.json",
    "undo": "undo STORE --yes",
    "rebuild": "rebuild STORE checkpoint --dry-run",
    "rebuild config": "rebuild STORE config --dry-run",
    "salvage": "salvage STORE NEW",
    "export": "export STORE NEW",
    "convert": "convert STORE NEW",
    "split": "split STORE NEW --topic Orders",
    "consolidate": "consolidate STORE NEW",
    "salvage --to": "salvage STORE NEW --to ndjson",
    "redact": "redact STORE --key order-40 --dry-run",
    "backup create": "backup create STORE NEW",
    "evidence": "evidence STORE NEW",
    "report html": "report html STORE NEW",
    "check": "check STORE",
    "trace": "trace STORE FD0000000000000000000000000000020FB630946E09664343CD0000",
    "why": "why STORE Orders order-65",
    "why, of a place": "why STORE Orders 0 5",
    "group list": "group list STORE",
    "group lag": "group lag STORE",
    "group inflight": "group inflight STORE",
    "group offsets": "group offsets STORE",
    "group reset --dry-run": "group reset STORE lab-consumer --to-earliest --dry-run",
    "group reset --yes": "group reset STORE lab-consumer --to-latest --yes",
    "group clone": "group clone STORE lab-consumer another --dry-run",
    "group diff": "group diff STORE STORE",
    "replicas": "replicas STORE STORE",
    "topic list": "topic list STORE",
    "topic show": "topic show STORE Orders",
    "topic latest": "topic latest STORE Orders",
    "topic unused": "topic unused STORE",
    "retry list": "retry list STORE",
    "dlq list": "dlq list STORE",
    "dlq export": "dlq export STORE",
    "dlq requeue": "dlq requeue STORE lab-consumer --dry-run",
    "run": "run STORE --until 0",
    "delay list": "delay list STORE",
    "delay due": "delay due STORE --all",
    "transaction list": "transaction list STORE",
    "transaction show": "transaction show STORE 5",
    "rebalance plan": "rebalance plan STORE Orders --consumer c1",
    "append": "append STORE /dev/null",
    "apply": f"apply STORE {_CLUSTER} --dry-run",
    "clean": "clean STORE --dry-run",
    "truncate": "truncate STORE 0 --dry-run",
    "dispatch": "dispatch STORE --dry-run",
}
COMMANDS: dict[str, list[str]] = {name: shlex.split(line) for name, line in _LINES.items()}
# with tests of their own
APART = (
    {
        "backup list",
        "browse",
        "backup restore",
        "backup verify",
        "dump",
        "dump-to-parquet",
        "warm-up",
        "explain",
        "import",
        "init",
        "manual",
        "namesrv",
        "consume",
        "mirror",
        "replay",
        "send",
        "serve",
        "sql",
    }
    | live_only()
    | {name for name in commands() if name.startswith("report ")}
)


def covered() -> set[str]:
    """Commands with a case."""
    return {" ".join(args[: args.index("STORE")]) for args in COMMANDS.values()}


def words_of_example(name: str) -> list[str]:
    """The arguments of the example in a command's help, with ``STORE`` for the store."""
    args = shlex.split(commands()[name].epilog.partition(": ")[2])[1:]
    return ["STORE" if word == "store" else word for word in args]


# a command without a line is tried by its example
COMMANDS |= {name: words_of_example(name) for name in sorted(commands().keys() - covered() - APART)}
every_command = pytest.mark.parametrize("name", COMMANDS)
RECOVER = {"recover --dry-run", "recover --yes"}
READS_INDEX = {
    "query-key",
    "query-key, not quick",
    "query-key --scan",
    "query-id",
    "index dump",
    "index dump --headers",
}
READS_INDEX |= RECOVER | {"info"}
READS_QUEUE = {"query-offset", "query-time", "consumequeue dump", "offsets", "info"} | RECOVER
READS_LOG = {"query-key", "query-key, not quick", "query-key --scan", "query-id", "query-offset", "query-time"}
READS_LOG |= RECOVER | {"commitlog dump", "commitlog hexdump", "info"}


def test_no_command_is_left_out() -> None:
    assert covered() | APART >= commands().keys()


def run(name: str, store: object, *more: object) -> Result:
    new = f"{store}.new"
    places = {"STORE": store, "NEW": new}
    result = rmqtool(*[places.get(word, word) for word in COMMANDS[name]], *more)
    for made in (new, f"{new}.lost+found"):
        shutil.rmtree(made, ignore_errors=True)
        with suppress(OSError):
            os.unlink(made)
    return result


def one_line(result: Result, code: int, *parts: str) -> None:
    """Check that the output is one error line and nothing else."""
    assert result.out == ""
    assert result.err.startswith("error: ")
    assert result.err.count("\n") == 1
    assert result.err.endswith("\n")
    assert result.code == code, result
    for part in parts:
        assert part in result.err


# -- no store ---------------------------------------------------------------------------------------------------------


@every_command
def test_a_missing_path(name: str, tmp_path: Path) -> None:
    one_line(run(name, tmp_path / "nothing"), 3, str(tmp_path / "nothing"))


@every_command
def test_a_directory_that_is_no_store(name: str, tmp_path: Path) -> None:
    (tmp_path / "some file").write_text("x")
    one_line(run(name, tmp_path), 3, str(tmp_path))
    assert os.listdir(tmp_path) == ["some file"]


@every_command
def test_an_empty_directory(name: str, tmp_path: Path) -> None:
    one_line(run(name, tmp_path), 3, str(tmp_path))


@by_turns(2)
@every_command
@pytest.mark.parametrize("kind", ["file", "fifo", "socket", "loop", "device", "below a file", "long"])
def test_a_path_that_is_no_directory(name: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path: Path | str = tmp_path / "store"
    assert isinstance(path, Path)
    if kind in ("file", "below a file"):
        path.write_bytes(bytes(100))
        path = path / "below" if kind == "below a file" else path
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "socket":
        monkeypatch.chdir(tmp_path)  # its name must be short
        with socket.socket(socket.AF_UNIX) as made:
            made.bind("store")
    elif kind == "loop":
        path.symlink_to("store")
    elif kind == "device":
        path = "/dev/null"
    else:
        path = tmp_path / ("x" * 300)
    one_line(run(name, path), 3)


@every_command
def test_only_config_files(name: str, golden: Unpacked, tmp_path: Path) -> None:
    shutil.copytree(golden("broker") / "config", tmp_path / "config")
    result = run(name, tmp_path)
    if name in ("info", "config", "config FILE", "offsets", "group offsets", "group diff"):
        assert result.code == 0
        assert re.fullmatch(r"(not shown: .*\n|no offset differs\n)?", result.err)
        assert result.out or name == "group diff"
    elif name == "check":
        assert result.code == 1  # it checks them: they speak of queues that are not there
        assert "config/consumerOffset.json" in result.out
    elif name in ("salvage", "export"):
        assert result.code == 0
        assert "no commit log in it: its tables are taken, and no message" in result.err
    elif name == "undo":
        assert (result.code, result.err) == (1, "nothing to undo\n")
    elif name == "apply":
        assert (result.code, result.err) == (0, "nothing to change\n")
    elif name == "static-topic list":
        assert (result.code, result.err) == (0, "there is nothing to list\n")
    elif name == "static-topic show":
        assert (result.code, result.err) == (1, "Ledger is no static topic here\n")
    elif name == "rebuild config":
        assert result.code == 0
        assert "not compared with queues and log" in result.err
    else:
        one_line(result, 3, str(tmp_path))
    assert os.listdir(tmp_path) == ["config"]


def test_the_dump_says_so_before_it_starts_spark(golden: Unpacked, tmp_path: Path) -> None:
    out = tmp_path / "out"
    configs = tmp_path / "configs"
    shutil.copytree(golden("broker") / "config", configs / "config")
    for store in (tmp_path / "nothing", tmp_path, configs):
        one_line(rmqtool("dump-to-parquet", store, out), 3, str(store))
    one_line(rmqtool("dump-to-parquet", golden("broker"), out, "--broker-conf", out), 3, str(out))
    out.mkdir()
    (out / "precious").touch()
    one_line(rmqtool("dump-to-parquet", golden("broker"), out), 4, str(out))
    assert os.listdir(out) == ["precious"]


# -- a broker's properties file that is broken ------------------------------------------------------------------------

SIZE = "mappedFileSizeCommitLog"


@every_command
@pytest.mark.parametrize("kind", ["missing", "directory", "fifo", "loop"])
def test_an_unreadable_broker_conf(name: str, kind: str, golden: Unpacked, tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    if kind == "directory":
        conf.mkdir()
    elif kind == "fifo":
        os.mkfifo(conf)
    elif kind == "loop":
        conf.symlink_to(conf)
    one_line(run(name, golden("broker"), "--broker-conf", conf), 3, str(conf))


@by_turns(7)
@every_command
@pytest.mark.parametrize("value", ["", "x", "-1", "0", "1.5", "1k", "99999999999999999999"])
def test_a_size_that_is_none(name: str, value: str, golden: Unpacked, tmp_path: Path) -> None:
    """Brokers ignore what is no number; commands do not end at it, except those that make files of that length."""
    conf, without = tmp_path / "broker.conf", tmp_path / "without.conf"
    without.write_text("brokerName=a\n")
    conf.write_text(f"brokerName=a\n{SIZE}={value}\n")
    got = run(name, golden("broker"), "--broker-conf", conf)
    if got.code != run(name, golden("broker"), "--broker-conf", without).code:
        one_line(got, 4, str(conf), SIZE)


@by_turns(2)
@every_command
def test_a_broker_conf_of_garbage(name: str, golden: Unpacked, tmp_path: Path) -> None:
    conf, right = tmp_path / "broker.conf", tmp_path / "right.conf"
    # without its sizes a broker takes its defaults, and so finds the store's files too short
    sizes = "".join(f"{key}={value}\n" for key, value in goldens.about("broker")["config"].items()).encode()
    right.write_bytes(sizes)
    conf.write_bytes(bytes(range(256)) * 40 + b"\n" + sizes)
    store = golden("broker")
    form = ("-o", "table") if name == "info" else ()
    expected, got = (run(name, store, "--broker-conf", path, *form) for path in (right, conf))
    got = Result(got.code, *(text.replace(str(conf), str(right)) for text in (got.out, got.err)))
    # these report each line, or the time of the run; nothing else is a setting
    assert got == expected or name in ("query-time", "check", "evidence", "report html", "backup create")


# -- files that cannot be read ----------------------------------------------------------------------------------------


@contextmanager
def not_root() -> Iterator[None]:
    """Drop root's power over file permissions."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def own_copy(golden: Unpacked) -> Iterator[Path]:
    """A store accessible to users other than root."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        store = Path(folder) / "store"
        shutil.copytree(golden("broker"), store)
        yield store
        for path in (store, *store.rglob("*")):
            if path.is_dir() and not path.is_symlink():
                path.chmod(0o755)


PARTS = {
    "the store": ("", set(COMMANDS)),
    "commitlog": ("commitlog", READS_LOG - {"recover --yes"} | {"offsets"}),
    "a commit-log file": (f"commitlog/{0:020d}", READS_LOG - {"recover --yes"}),
    "consumequeue": ("consumequeue", READS_QUEUE - {"recover --yes"}),
    "a topic": ("consumequeue/Orders", READS_QUEUE - {"recover --yes"}),
    "a queue": ("consumequeue/Orders/0", READS_QUEUE - {"recover --yes"}),
    "a queue file": (f"consumequeue/Orders/0/{0:020d}", READS_QUEUE - {"recover --yes"}),
    "index": ("index", READS_INDEX - {"recover --yes"}),
    "config": ("config", {"config", "config FILE", "offsets", "info"}),
    "topics.json": ("config/topics.json", {"config FILE"}),  # others have it among their problems
    "checkpoint": ("checkpoint", {"checkpoint", "info", "recover --dry-run"}),
}


# what writes into the store comes last
ONE_AFTER_ANOTHER = sorted(COMMANDS, key=lambda name: name in ("recover --yes", "undo"))


@pytest.fixture(scope="module")
def everything_imported(golden: Unpacked) -> None:
    """Import everything first, as another user might not be able to."""
    for name in ONE_AFTER_ANOTHER:
        run(name, golden("broker"))


@by_turns(13)
@pytest.mark.parametrize("part", PARTS)
@pytest.mark.usefixtures("everything_imported")
def test_no_permission(part: str, own_copy: Path) -> None:
    relative, readers = PARTS[part]
    path = own_copy / relative
    mode = path.stat().st_mode
    for name in ONE_AFTER_ANOTHER:
        path.chmod(0)
        with not_root():
            result = run(name, own_copy)
        path.chmod(mode)
        assert "Traceback" not in result.err
        if name in readers:
            assert result.code in (3, 4), name
            last = result.err.splitlines()[-1]
            assert last.startswith("error: ")
            assert "Permission denied" in last
            assert str(path) in last
        else:
            assert result.code in (0, 1, 3, 4), name


@by_turns(13)
@pytest.mark.parametrize("kind", ["fifo", "directory", "loop"])
@pytest.mark.parametrize(
    "relative",
    [
        f"commitlog/{0:020d}", f"consumequeue/Orders/0/{0:020d}", "index/20261120203445001", "config/topics.json",
        "config/consumerOffset.json", "checkpoint", "abort", "lock", "commitlog", "consumequeue", "index", "config",
    ],
)  # fmt: skip
def test_no_regular_file(kind: str, relative: str, golden: Unpacked, tmp_path: Path) -> None:
    store = tmp_path / "store"
    shutil.copytree(golden("broker"), store)
    replace_by(store / relative, kind)
    for name in ONE_AFTER_ANOTHER:
        result = run(name, store)
        assert result.code in (0, 1, 3, 4, 5), name
        assert "Traceback" not in result.err
        if result.code >= 3:
            warned = ("it is unknown whether", "as a broker does at its start", "there is no commit log in it")
            lines = [
                line
                for line in result.err.splitlines(keepends=True)
                if line.startswith("error: ") or not any(text in line for text in warned)
            ]
            one_line(result._replace(err="".join(lines)), result.code)


# -- broken config files ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "at"),
    [(b"", 0), (b"{", 1), (b'{"topicConfigTable":', 20), (b"[]", None), (b'{"a":1}}', 7), (b"\xff\xfe{}", 0),
     (b"[" * 100_000, None), (b'{"topicConfigTable":5}', None)],
)  # fmt: skip
def test_broken_json(content: bytes, at: int | None, golden: Unpacked, tmp_path: Path) -> None:
    store = tmp_path / "store"
    shutil.copytree(golden("broker"), store)
    path = store / "config" / "topics.json"
    path.chmod(path.stat().st_mode | stat.S_IWUSR)
    path.write_bytes(content)
    one_line(run("config FILE", store), 5, f"{path}: byte " + (f"{at}: " if at is not None else ""))
    listed = run("config", store)
    assert listed.code == 1
    assert listed.err.startswith(f"{path}: ")
    assert listed.err.count("\n") == 1
    told = run("info", store)
    assert told.code == 1
    assert "config/topics.json" in told.err
    offsets = store / "config" / "consumerOffset.json"
    offsets.chmod(0o644)
    offsets.write_bytes(content)
    if content != b'{"topicConfigTable":5}':
        one_line(run("offsets", store), 5, str(offsets))


@pytest.mark.parametrize("file", ["../topics.json", "/etc/passwd", "..", ".", "", "no.json", "x" * 300])
def test_config_shows_files_below_config_only(file: str, golden: Unpacked) -> None:
    one_line(rmqtool("config", golden("broker"), file), 3)


def test_a_config_file_that_is_huge(golden: Unpacked, tmp_path: Path) -> None:
    store = tmp_path / "store"
    shutil.copytree(golden("broker"), store)
    path = store / "config" / "topics.json"
    path.chmod(0o644)
    with path.open("r+b") as file:
        file.truncate(1 << 40)  # a hole
    one_line(run("config FILE", store), 5, str(path))


# -- values -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "args",
    [
        ["query-time", "STORE", "Orders", "0", "tomorrow"],
        ["query-time", "STORE", "Orders", "0", "2026-13-01"],
        ["query-time", "STORE", "Orders", "0", "9999999999999999999"],
        ["query-time", "STORE", "Orders", "0", "0", "--engine", "6"],
        ["query-time", "STORE", "Orders", "0", "0", "--upper"],
        ["query-offset", "STORE", "Orders", "0", "0", "--engine", "6"],
        ["commitlog", "dump", "STORE", "--offset", "x"],
        ["commitlog", "dump", "STORE", "--offset", "-5"],
        ["commitlog", "dump", "STORE", "--since", "x"],
        ["commitlog", "hexdump", "STORE", "--offset", ":"],
        ["consumequeue", "dump", "STORE", "--queue-offset", "1:2:3"],
        ["query-key", "STORE", "Orders", "k", "--until", "x"],
    ],
)
def test_values_that_mean_nothing(args: list[str], golden: Unpacked) -> None:
    one_line(rmqtool(*[golden("broker") if word == "STORE" else word for word in args]), 2)


@pytest.mark.parametrize("topic", ["", ".", "..", "../Orders", "a/b", "/", "x" * 300, "\udcff"])
def test_topics_that_cannot_be(topic: str, golden: Unpacked) -> None:
    store = golden("broker")
    for arguments in (
        ["query-offset", store, topic, 0, 0],
        ["query-time", store, topic, 0, 0],
        ["query-key", store, topic, "k"],
        ["query-key", store, "Orders", topic, "--scan"],
        ["query-id", store, topic, "--scan"],
        ["query-id", store, "x", "--topic", topic],
    ):
        result = rmqtool(*arguments)
        assert result.code == 1, result
        assert result.err.count("\n") == 1


@pytest.mark.parametrize("number", ["2147483648", "9" * 25, "9" * 5000])
def test_numbers_beyond_every_queue(number: str, golden: Unpacked) -> None:
    store = golden("broker")
    for arguments in (
        ["query-offset", store, "Orders", number, 0],
        ["query-offset", store, "Orders", 0, number],
        ["query-offset", store, "Orders", 0, f"-{number}"],
        ["query-offset", store, "Orders", 0, 0, "--max-msgs", number],
        ["commitlog", "dump", store, "--limit", number, "--topic", "none"],
        ["commitlog", "dump", store, "--queue", number],
        ["commitlog", "hexdump", store, "--offset", number],
        ["query-key", store, "Orders", "k", "--limit", number],
    ):
        result = rmqtool(*arguments)
        assert result.code in (0, 1, 2), result
        assert "Traceback" not in result.err


@pytest.mark.parametrize("hours", ["inf", "nan", "-1", "-inf", "x", "1e400"])
def test_an_age_that_is_no_number_of_hours(hours: str, golden_copy: Unpacked) -> None:
    store = golden_copy("broker")
    before = tree(store)
    for more in ("--dry-run", "--yes"):
        result = rmqtool("clean", store, f"--hours={hours}", more)
        assert result.code == 2, result
        assert "Traceback" not in result.err
    assert tree(store) == before
