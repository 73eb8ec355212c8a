"""The same day of commands under circumstances that operators have: every step ends as on a plain disk, byte for byte.

What differs is where the store lies and by which name it is called, who runs the command, and what the system allows.
"""

import hashlib
import json
import os
import resource
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests import goldens
from tests.conftest import Unpacked
from tests.model.commands import Done, run

CASE = "broker-crash"
OTHER_USER = 12345


@dataclass
class Place:
    """Where the store lies, and how commands are run on it."""

    store: Path
    name: str | None = None  # as the command is given it
    limits: dict[int, int] = field(default_factory=dict)
    before: Callable[[], object] | None = None
    after: Callable[[Path], None] | None = None

    def run(self, *words: str, stdin: bytes = b"") -> Done:
        """A command of the day."""
        told = [word.replace("STORE", self.name or str(self.store)) for word in words]
        return run(*told, stdin=stdin, limits=self.limits, before=self.before)


def content(store: Path) -> dict[str, str]:
    """Content of every file, through links too; index files, which are named by the clock, by their number."""
    found: dict[str, str] = {}
    for folder, folders, names in os.walk(store, followlinks=True):
        folders.sort()
        for name in sorted(names):
            path = Path(folder, name)
            key = path.relative_to(store).as_posix()
            if key.startswith("index/"):
                key = f"index/{sum(other.startswith('index/') for other in found)}"
            found[key] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def rows() -> bytes:
    """Messages that give the same bytes whenever they are appended."""
    made = [
        {
            "topic": f"new{n % 4}", "queueId": n % 2, "body": f"message {n}" * (n % 9), "keys": [f"key{n}"],
            "bornTimestamp": 1_700_000_000_000 + n, "storeTimestamp": 1_700_000_000_000 + n,
        }
        for n in range(40)
    ]  # fmt: skip
    return "".join(json.dumps(row) + "\n" for row in made).encode()


def day(conf: Path) -> list[tuple[list[str], bytes]]:
    """What is done, in order."""
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
        (["clean", "STORE", "--hours", "0", "--yes"], b""),
        (["undo", "STORE", "--yes"], b""),
        (["commitlog", "dump", "STORE", "--output", "ndjson"], b""),
        (["consumequeue", "dump", "STORE", "--output", "ndjson"], b""),
        (["topic", "list", "STORE"], b""),
        (["check", "STORE"], b""),
    ]
    return [([*words, *sizes], data) for words, data in steps]


@dataclass
class Seen:
    """What a step left."""

    words: list[str]
    code: int
    out: str
    store: dict[str, str]


def live(place: Place, conf: Path, cut: int, group: str) -> list[Seen]:
    """The day, step by step."""
    seen = []
    for words, data in day(conf):
        told = [word.replace("CUT", str(cut)).replace("GROUP", group) for word in words]
        done = place.run(*told, stdin=data)
        assert "Traceback" not in done.err, done.err
        out = done.out.replace(place.name or "", "STORE") if place.name else done.out.replace(str(place.store), "STORE")
        if "dump" not in words:
            out = ""
        seen.append(Seen(words, done.code, out, {} if place.before else content(place.store)))
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
    """The store at the beginning of the day."""
    store = shutil.copytree(golden(CASE), tmp_path_factory.mktemp("whole") / "store")
    for path in store.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    return store


@pytest.fixture(scope="module")
def plan(whole: Path, conf: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[int, str]:
    """(where the log is cut, a group that has offsets)."""
    done = run("commitlog", "dump", whole, "--output", "ndjson", "--broker-conf", conf)
    lines = done.out.splitlines()
    groups = json.loads(run("offsets", whole, "--output", "json", "--broker-conf", conf).out)
    return json.loads(lines[len(lines) // 2])["physicalOffset"], groups[0]["group"]


@pytest.fixture(scope="module")
def expected(whole: Path, conf: Path, plan: tuple[int, str], tmp_path_factory: pytest.TempPathFactory) -> list[Seen]:
    """The day on a plain disk."""
    store = shutil.copytree(whole, tmp_path_factory.mktemp("plain") / "store")
    seen = live(Place(store), conf, *plan)
    codes = {one.words[0]: one.code for one in seen}
    assert codes["recover"] == codes["append"] == codes["rebuild"] == codes["truncate"] == codes["group"] == 0
    assert codes["undo"] == codes["clean"] == 0
    return seen


# -- circumstances -----------------------------------------------------------------------------------------------------


@contextmanager
def tmpfs(path: Path) -> Iterator[Path]:
    """Another file system."""
    path.mkdir(parents=True, exist_ok=True)
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256m", "tmpfs", path], check=False).returncode:
        pytest.skip("no right to mount")
    try:
        yield path
    finally:
        subprocess.run(["umount", "-l", path], check=True)


@contextmanager
def named(name: str, whole: Path, tmp: Path) -> Iterator[Place]:
    """A path that is hard to quote."""
    (tmp / name).parent.mkdir(parents=True, exist_ok=True)
    yield Place(shutil.copytree(whole, tmp / name))


@contextmanager
def by_a_link(whole: Path, tmp: Path) -> Iterator[Place]:
    """The store is reached through a symbolic link."""
    store = shutil.copytree(whole, tmp / "real")
    (tmp / "link").symlink_to(store)
    yield Place(store, name=str(tmp / "link"))


@contextmanager
def parts_elsewhere(how: str, parts: tuple[str, ...], whole: Path, tmp: Path) -> Iterator[Place]:
    """Directories of the store lie on another file system, by links or mounts."""
    store = shutil.copytree(whole, tmp / "store")
    if how == "link":
        with tmpfs(tmp / "disk") as disk:
            for part in parts:
                shutil.move(store / part, disk / part)
                (store / part).symlink_to(disk / part)
            yield Place(store)
        return
    (part,) = parts
    shutil.move(store / part, tmp / "aside")
    with tmpfs(store / part):
        shutil.copytree(tmp / "aside", store / part, dirs_exist_ok=True)
        yield Place(store)


@contextmanager
def few_descriptors(whole: Path, tmp: Path) -> Iterator[Place]:
    """As services are often given, but fewer."""
    yield Place(shutil.copytree(whole, tmp / "store"), limits={resource.RLIMIT_NOFILE: 32})


@contextmanager
def of_another_user(whole: Path, tmp: Path) -> Iterator[Place]:
    """Root runs the commands on a broker's store, with a closed umask; the broker's user must go on having it all."""
    if os.geteuid():
        pytest.skip("needs root")
    store = shutil.copytree(whole, tmp / "store")
    for path in (store, *store.rglob("*")):
        os.chown(path, OTHER_USER, OTHER_USER)

    def owned(folder: Path) -> None:
        for path in (folder, *folder.rglob("*")):
            found = path.stat()
            assert (found.st_uid, found.st_gid) == (OTHER_USER, OTHER_USER), path
            wanted = 0o700 if path.is_dir() else 0o600
            assert found.st_mode & wanted == wanted, path
            assert found.st_mode & 0o044 == 0o044, path

    yield Place(store, before=lambda: os.umask(0o077), after=owned)


CIRCUMSTANCES: dict[str, Callable[[Path, Path], Any]] = {
    "spaces-and-quotes": lambda whole, tmp: named("a b'c\"d$(x) `y`", whole, tmp),
    "newline": lambda whole, tmp: named("two\nlines", whole, tmp),
    "unicode": lambda whole, tmp: named("商店-Ω-\u202e", whole, tmp),
    "percent-and-backslash": lambda whole, tmp: named("100%s\\n{}", whole, tmp),
    "no-utf8": lambda whole, tmp: named(os.fsdecode(b"\xff\xfe"), whole, tmp),
    "long": lambda whole, tmp: named("/".join(["x" * 200] * 8), whole, tmp),
    "link": by_a_link,
    "log-elsewhere": lambda whole, tmp: parts_elsewhere("link", ("commitlog",), whole, tmp),
    "queues-elsewhere": lambda whole, tmp: parts_elsewhere("link", ("consumequeue",), whole, tmp),
    "index-and-config-elsewhere": lambda whole, tmp: parts_elsewhere("link", ("index", "config"), whole, tmp),
    "log-mounted": lambda whole, tmp: parts_elsewhere("mount", ("commitlog",), whole, tmp),
    "index-mounted": lambda whole, tmp: parts_elsewhere("mount", ("index",), whole, tmp),
    "few-descriptors": few_descriptors,
    "another-user": of_another_user,
}


@pytest.mark.parametrize("name", CIRCUMSTANCES)
def test_a_day_ends_as_on_a_plain_disk(
    name: str, whole: Path, conf: Path, plan: tuple[int, str], expected: list[Seen], tmp_path: Path
) -> None:
    with CIRCUMSTANCES[name](whole, tmp_path) as place:
        seen = live(place, conf, *plan)
    for one, other in zip(seen, expected, strict=True):
        assert one.code == other.code, one.words
        assert one.out == other.out, one.words
        if one.store:
            assert one.store == other.store, one.words


# -- places that nothing may be written to, and files that are too long ------------------------------------------------


@contextmanager
def read_only(path: Path) -> Iterator[None]:
    """A mount that nothing can be written to."""
    for words in (["mount", "--bind", path, path], ["mount", "-o", "remount,ro,bind", path]):
        if subprocess.run(words, check=False).returncode:
            pytest.skip("no right to mount")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", path], check=True)


def test_a_medium_that_is_read_only(whole: Path, conf: Path, plan: tuple[int, str], tmp_path: Path) -> None:
    store = shutil.copytree(whole, tmp_path / "medium" / "store")
    before = content(store)
    with read_only(tmp_path / "medium"):
        for words, data in day(conf):
            told = [word.replace("CUT", str(plan[0])).replace("GROUP", plan[1]) for word in words]
            done = Place(store).run(*told, stdin=data)
            assert "Traceback" not in done.err, done.err
            if {"--yes", "-"} & set(words):
                assert done.code in (1, 3, 4) or "nothing" in done.err, done
                if done.code in (3, 4):
                    assert done.err.splitlines()[-1].startswith("error: "), done
            else:
                assert done.code in (0, 1, 4), done
    assert content(store) == before


LONG = [
    *((part, 1 << 31) for part in ("commitlog/LAST", "consumequeue/TOPIC/0/LAST")),
    *(
        (part, 1 << 32)
        for part in ("commitlog/LAST", "index/LAST", "config/topics.json", "checkpoint", "abort", "lock")
    ),
]


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
    for words in (["info"], ["check"], ["recover", "--dry-run"], ["recover", "--yes"], ["topic", "list"], ["offsets"]):
        told = ["info", str(store)] if words == ["info"] else [*words[: 1 + (words[0] == "topic")], str(store)]
        told += [word for word in words if word.startswith("--")]
        done = run(*told, "--broker-conf", conf, limits=memory)
        assert "Traceback" not in done.err, done.err
        assert done.code in (0, 1, 3, 4, 5), done
        assert done.code < 3 or done.err.splitlines()[-1].startswith("error: "), done
