"""Any damage to any file of a store: every command ends with a documented exit code, and reading changes nothing.

``RMQTOOL_FUZZ_EXAMPLES`` raises the number of damaged stores.
"""

import hashlib
import os
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis import strategies as st

from tests.amounts import by_turns, some
from tests.cli.running import Result, rmqtool
from tests.conftest import Unpacked

pytestmark = pytest.mark.slow

EXAMPLES = int(os.environ.get("RMQTOOL_FUZZ_EXAMPLES", some("6", "20")))
MOST_SECONDS = 20  # of one command; none takes one even on a busy machine
CASES = ("crash", "broker")
TOPIC = {"crash": "TopicA", "broker": "Orders"}
KEY = {"crash": "key-363", "broker": "user-9"}

DAMAGE = st.lists(
    st.tuples(
        st.sampled_from(
            ["flip", "flip", "flip", "write", "zero", "ones", "truncate", "extend", "delete", "copy", "swap"]
        ),
        st.integers(0, 10**6),  # which file
        st.one_of(st.integers(0, 200), st.integers(0, 10**6)),  # which byte
        st.one_of(
            st.binary(min_size=1, max_size=12),
            st.sampled_from(
                [b"\xff" * 4, b"\x7f\xff\xff\xff", b"\x80\0\0\0", b"\x7f" + b"\xff" * 7, b"\x80" + bytes(7), b"\0" * 8]
            ),
        ),
    ),
    min_size=1,
    max_size=8,
)


def reading(store: Path, case: str) -> list[list[str]]:
    """Every command that only reads, with options that exercise all of it."""
    s, topic, key = str(store), TOPIC[case], KEY[case]
    return [
        ["info", s],
        ["info", s, "-o", "json"],
        ["check", s],
        ["check", s, "-o", "ndjson"],
        ["recover", s, "--dry-run"],
        ["recover", s, "--dry-run", "-o", "json", "--fix-delay-times"],
        ["recover", s, "--dry-run", "-o", "csv"],
        ["query-key", s, topic, key, "-o", "ndjson"],
        ["query-key", s, topic, "none", "--scan"],
        ["query-id", s, "FD0000000000000000000000000000020FB630946E09664347930066", "--scan"],
        ["query-id", s, "7F000001000078BF0000000000003AB7", "-o", "csv"],
        ["query-offset", s, topic, "0", "0", "--max-msgs", "32", "-o", "json", "--body", "json"],
        ["query-offset", s, topic, "1", "5", "--status", "--engine", "5.3"],
        ["query-time", s, topic, "0", "1795208307900"],
        ["query-time", s, topic, "0", "1795206885011", "--engine", "5.3", "--upper", "-o", "csv"],
        ["commitlog", "dump", s],
        ["commitlog", "dump", s, "-o", "csv", "--tag", "Tag1", "--offset", "100:90000"],
        ["commitlog", "dump", s, "-o", "ndjson", "--body", "json"],
        ["commitlog", "hexdump", s, "--limit", "300"],
        ["commitlog", "hexdump", s, "--offset", "2867"],
        ["consumequeue", "dump", s, "-o", "ndjson"],
        ["consumequeue", "dump", s, "--all", "-o", "csv"],
        ["index", "dump", s, "-o", "ndjson"],
        ["index", "dump", s, "--headers"],
        ["checkpoint", s],
        ["checkpoint", s, "-o", "json"],
        ["offsets", s],
        ["offsets", s, "--bak"],
        ["config", s],
        ["config", s, "topics.json"],
        ["config", s, "consumerOffset.json", "-o", "ndjson"],
    ]


def files_of(store: Path) -> list[Path]:
    return sorted(path for path in store.rglob("*") if path.is_file())


def damage(store: Path, steps: list[Any]) -> None:
    """Apply the drawn damage; its description is noted for failures."""
    for verb, which, where, content in steps:
        files = files_of(store)
        if not files:
            return
        path = files[which % len(files)]
        data = bytearray(path.read_bytes())
        at = where % max(len(data), 1)
        note(f"{verb} {path.relative_to(store)} at {at} {content.hex()}")
        if verb == "flip" and data:
            data[at] ^= 1 << content[0] % 8
        elif verb == "write":
            data[at : at + len(content)] = content
        elif verb in ("zero", "ones"):
            length = min(len(data) - at, 16 * len(content))
            data[at : at + length] = (b"\0" if verb == "zero" else b"\xff") * length
        elif verb == "truncate":
            del data[at:]
        elif verb == "extend":
            data += content * (1 + where % 50)
        elif verb == "delete":
            path.unlink()
            continue
        elif verb == "copy":
            name = path.name
            other = f"{(int(name) if name.isdecimal() else 0) + where:0{len(name)}d}" if where % 2 else name + "x"
            shutil.copy2(path, path.with_name(other))
            continue
        elif verb == "swap":
            data = bytearray(files[where % len(files)].read_bytes())
        path.write_bytes(data)


def fingerprint(store: Path) -> dict[str, tuple[int, str]]:
    """Names, modification times and content of everything below a directory."""
    result = {}
    for path in sorted(store.rglob("*")):
        content = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "directory"
        result[str(path.relative_to(store))] = (path.lstat().st_mtime_ns, content)
    return result


def checked(args: list[str]) -> Result:
    """Run a command; it must end soon, with a documented exit code."""
    start = time.monotonic()
    result = rmqtool(*args)
    assert time.monotonic() - start < MOST_SECONDS, args
    assert result.code in (0, 1, 3, 4, 5), (args, result.code, result.err)
    assert "Traceback" not in result.err
    if result.code >= 3:
        lines = result.err.splitlines()
        errors = ("error: ", '{"error":')
        assert lines[-1].startswith(errors), args
        assert sum(line.startswith(errors) for line in lines) == 1
    return result


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory for one damaged store after another."""
    return tmp_path_factory.mktemp("fuzz")


@by_turns(13)
@pytest.mark.parametrize("case", CASES)
@given(steps=DAMAGE)
@settings(
    max_examples=EXAMPLES,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],  # to shrink takes far longer than to read the notes
    suppress_health_check=list(HealthCheck),
)
def test_any_damage(case: str, golden: Unpacked, workshop: Path, steps: list[Any]) -> None:
    signal.alarm(MOST_SECONDS * 3)  # of this store; see no_hang
    shutil.rmtree(workshop)
    store = workshop / "store"
    shutil.copytree(golden(case), store)
    for path in store.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    damage(store, steps)
    before = fingerprint(store)
    for args in reading(store, case):
        checked(args)
    assert fingerprint(store) == before
    assert os.listdir(workshop) == ["store"]
    plan = checked(["recover", str(store), "--dry-run"])
    done = checked(["recover", str(store), "--yes", "--accept-loss"])
    if plan.code >= 3:
        assert done.code >= 3
        assert fingerprint(store) == before or done.code != 3
    elif done.code == 0:
        # a broker's next start may cut what the one before has made visible, and this follows it; but that has an end
        again = [checked(["recover", str(store), "--yes", "--accept-loss"]) for _ in range(3)]
        assert [run.code for run in again] == [0, 0, 0]
        assert "Nothing to do" in again[-1].out
