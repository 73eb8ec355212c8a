"""The same scenario under realistic circumstances: every step ends as on a plain disk, byte for byte.

What differs is the location and path of the store, the user who runs the command, and system limits.
"""

import hashlib
import json
import os
import resource
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from tests import goldens
from tests.amounts import by_turns, every
from tests.conftest import Unpacked
from tests.model.circumstances import CIRCUMSTANCES, Place
from tests.model.commands import run
from tests.model.serving import serve_and_send

CASE = "broker-crash"


def content(store: Path) -> dict[str, str]:
    """Content of every file, also through links; index files, whose names depend on the clock, by number."""
    result: dict[str, str] = {}
    for folder, folders, names in os.walk(store, followlinks=True):
        folders.sort()
        for name in sorted(names):
            path = Path(folder, name)
            key = path.relative_to(store).as_posix()
            if key.startswith("index/"):
                key = f"index/{sum(other.startswith('index/') for other in result)}"
            result[key] = hashlib.sha256(path.read_bytes()).hexdigest()
    return result


def rows() -> bytes:
    """Messages that give the same bytes at any time."""
    made = [
        {
            "topic": f"new{n % 4}", "queueId": n % 2, "body": f"message {n}" * (n % 9), "keys": [f"key{n}"],
            "bornTimestamp": 1_700_000_000_000 + n, "storeTimestamp": 1_700_000_000_000 + n,
        }
        for n in range(40)
    ]  # fmt: skip
    return "".join(json.dumps(row) + "\n" for row in made).encode()


def day(conf: Path) -> list[tuple[list[str], bytes]]:
    """The steps, in order."""
    sizes = ["--broker-conf", str(conf)]
    steps: list[tuple[list[str], bytes]] = [
        (["info", "STORE"], b""),
        (["check", "STORE"], b""),
        (["recover", "STORE", "--dry-run"], b""),
        (["recover", "STORE", "--yes"], b""),
        (["append", "STORE", "-", "--keep-times"], rows()),
        (["dispatch", "STORE"], b""),
        (["rebuild", "STORE", "consumequeue", "index", "checkpoint", "--yes"], b""),
        (["truncate", "STORE", "CUT", "--yes"], b""),
        (["undo", "STORE", "--yes"], b""),
        (["group", "reset", "STORE", "GROUP", "--to-earliest", "--clamp", "--yes"], b""),
        (["clean", "STORE", "--hours", "0", "--yes", "--accept-loss"], b""),
        (["undo", "STORE", "--yes"], b""),
        (["commitlog", "dump", "STORE", "--output", "ndjson"], b""),
        (["consumequeue", "dump", "STORE", "--output", "ndjson"], b""),
        (["topic", "list", "STORE"], b""),
        (["check", "STORE"], b""),
    ]
    return [([*args, *sizes], data) for args, data in steps]


@dataclass
class Seen:
    """The result of a step."""

    words: list[str]
    code: int
    out: str
    store: dict[str, str]


def live(place: Place, conf: Path, cut: int, group: str) -> list[Seen]:
    """Run the scenario step by step."""
    seen = []
    for args, data in day(conf):
        told = [word.replace("CUT", str(cut)).replace("GROUP", group) for word in args]
        done = place.run(*told, stdin=data)
        assert "Traceback" not in done.err, done.err
        out = done.out.replace(place.name or "", "STORE") if place.name else done.out.replace(str(place.store), "STORE")
        if "dump" not in args:
            out = ""
        seen.append(Seen(args, done.code, out, {} if place.before else content(place.store)))
        if place.after is not None:
            place.after(place.store)
    if place.before:
        seen[-1].store = content(place.store)
    return seen


@pytest.fixture(scope="module")
def conf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("conf") / "broker.conf"
    path.write_text("".join(f"{name}={value}\n" for name, value in goldens.about(CASE)["config"].items()))
    path.chmod(0o644)
    path.parent.chmod(0o755)
    return path


@pytest.fixture(scope="module")
def whole(golden: Unpacked, conf: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The initial store."""
    store = shutil.copytree(golden(CASE), tmp_path_factory.mktemp("whole") / "store")
    for path in store.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    return store


@pytest.fixture(scope="module")
def plan(whole: Path, conf: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[int, str]:
    """(offset at which to cut the log, a group with offsets)."""
    result = run("commitlog", "dump", whole, "--output", "ndjson", "--broker-conf", conf)
    lines = result.out.splitlines()
    groups = json.loads(run("offsets", whole, "--output", "json", "--broker-conf", conf).out)
    return json.loads(lines[len(lines) // 2])["physicalOffset"], groups[0]["group"]


@pytest.fixture(scope="module")
def expected(whole: Path, conf: Path, plan: tuple[int, str], tmp_path_factory: pytest.TempPathFactory) -> list[Seen]:
    """The results on a plain disk."""
    store = shutil.copytree(whole, tmp_path_factory.mktemp("plain") / "store")
    seen = live(Place(store), conf, *plan)
    codes = {state.words[0]: state.code for state in seen}
    assert codes["recover"] == codes["append"] == codes["rebuild"] == codes["truncate"] == codes["group"] == 0
    assert codes["undo"] == codes["clean"] == 0
    return seen


@by_turns(13)
@pytest.mark.parametrize("name", every(4, list(CIRCUMSTANCES), 1))
def test_a_day_ends_as_on_a_plain_disk(
    name: str, whole: Path, conf: Path, plan: tuple[int, str], expected: list[Seen], tmp_path: Path
) -> None:
    with CIRCUMSTANCES[name](whole, tmp_path) as place:
        seen = live(place, conf, *plan)
    for first, second in zip(seen, expected, strict=True):
        assert first.code == second.code, first.words
        assert first.out == second.out, first.words
        if first.store:
            assert first.store == second.store, first.words


# -- places that nothing may be written to, and files that are too long ------------------------------------------------


@contextmanager
def read_only(path: Path) -> Iterator[None]:
    """A read-only mount."""
    for arguments in (["mount", "--bind", str(path), str(path)], ["mount", "-o", "remount,ro,bind", str(path)]):
        if subprocess.run(arguments, check=False).returncode:
            pytest.skip("no right to mount")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", path], check=True)


MORE = [
    *(["rebuild", "STORE", part, "--yes"] for part in ("config", "timer", "compaction")),
    ["run", "STORE", "--once"],
    ["dlq", "requeue", "STORE", "GROUP", "--yes"],
    ["group", "clone", "STORE", "GROUP", "other", "--yes"],
]


@by_turns(7)
def test_a_medium_that_is_read_only(whole: Path, conf: Path, plan: tuple[int, str], tmp_path: Path) -> None:
    store = shutil.copytree(whole, tmp_path / "medium" / "store")
    before = content(store)
    with read_only(tmp_path / "medium"):
        sizes = ["--broker-conf", str(conf)]
        for args, data in [*day(conf), *(([*args, *sizes], b"") for args in MORE)]:
            told = [word.replace("CUT", str(plan[0])).replace("GROUP", plan[1]) for word in args]
            done = Place(store).run(*told, stdin=data)
            assert "Traceback" not in done.err, done.err
            if {"--yes", "-", "--once"} & set(args):
                assert done.code in (1, 3, 4) or "nothing" in done.err, done
                if done.code in (3, 4):
                    assert done.err.splitlines()[-1].startswith("error: "), done
            else:
                assert done.code in (0, 1, 4), done
        served = partial(
            serve_and_send, str(store), str(conf), [{"topic": "A", "queueId": 0, "body": "x", "keys": "k"}]
        )
        done = Place(store).run("serve", "STORE", instead=served)
        assert (done.code, done.out) == (4, ""), done
        assert "Traceback" not in done.err, done.err
    assert content(store) == before


LONG = [
    *((part, 1 << 31) for part in ("commitlog/LAST", "consumequeue/TOPIC/0/LAST")),
    *(
        (part, 1 << 32)
        for part in ("commitlog/LAST", "index/LAST", "config/topics.json", "checkpoint", "abort", "lock")
    ),
]


@by_turns(13)
@pytest.mark.parametrize(("part", "size"), LONG)
def test_files_longer_than_brokers_make_them(part: str, size: int, whole: Path, conf: Path, tmp_path: Path) -> None:
    store = shutil.copytree(whole, tmp_path / "store")
    folder = store / os.path.dirname(part)
    if "TOPIC" in part:
        folder = sorted((store / "consumequeue").glob("*/0"))[0]
    path = sorted(folder.iterdir())[-1] if part.endswith("LAST") else store / part
    with open(path, "ab") as file:
        file.truncate(size + 5)
    memory = {resource.RLIMIT_AS: 24 << 30}
    commands = ("info", "check", "recover --dry-run", "recover --yes", "topic list", "offsets", "run --once", "append")
    for args in map(str.split, commands):
        told = ["info", str(store)] if args == ["info"] else [*args[: 1 + (args[0] == "topic")], str(store)]
        told += [word for word in args if word.startswith("--")]
        if args == ["append"]:
            told.append("-")
        result = run(*told, "--broker-conf", conf, limits=memory, stdin=b'{"topic":"new","body":"x"}\n')
        assert "Traceback" not in result.err, result.err
        assert result.code in (0, 1, 3, 4, 5), result
        assert result.code < 3 or result.err.splitlines()[-1].startswith("error: "), result
