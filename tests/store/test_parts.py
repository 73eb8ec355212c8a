"""The list of all parts of a store: each file of a real store is of one, and a new store has what the list says."""

import json
import re
import shutil
import tarfile
from pathlib import Path

import pytest

from formats.topics import TIMER
from rmqtool.cli.commands import COMMANDS
from rmqtool.store.layout.parts import PARTS, Fate, part_of
from tests import goldens, rocks, roles
from tests.amounts import by_turns
from tests.cli.running import rmqtool
from tests.store.test_accounts import ACLS, USERS

CASES = [
    "broker", "lmq", "delay", "queue-ext", "broker-5.3.3", "broker-5.3.3-crash", "compaction-5.3.3", "broker-5.5.0",
    "rocksdb-5.3.3", "rocksdb-5.5.0", "rocksdb-5.5.0-default-halves", "config-v2", "pop-store",
]  # fmt: skip
MEMBERS = [
    (roles.DLEDGER, "n0"), (roles.TIERED, "a"), (roles.NEW_TIERED, "a"), (roles.CONTROLLER, "a"),
    (roles.SLAVE, "slave"),
]  # fmt: skip
# of versions that wrote no store that we have, or files that only a broker has while it runs
MADE = ("RocksDBMessageStore", "transaction", "timercheck", "timerwheel.*", "consumequeue_rocksdb", "config/users",
        "config/acls", "tieredstore", "abort", "config/topicQueueMapping.json")  # fmt: skip
_TIMER = ("timerwheel", "timerlog", "config/timercheck")
ELSEWHERE = {"log", "tiered"}  # folders that settings name


def unpacked(case: str, folder: Path) -> tuple[Path, tuple[str, ...]]:
    """A store, and the options that it needs."""
    member = dict(MEMBERS).get(case)
    if member is None:
        return goldens.unpack(case, folder), ()
    node = roles.unpack(case, member, folder)
    return node.store, node.options()


def names_in(store: Path) -> list[str]:
    """Paths below a store, down to what a part may be."""
    inside = [path for path in store.iterdir() if path.name != "config"]
    return [str(path.relative_to(store)) for path in (*inside, *(store / "config").glob("*"))]


@by_turns(3)
@pytest.mark.parametrize("case", [*CASES, *dict(MEMBERS)])
def test_a_new_store_has_every_part(case: str, tmp_path: Path) -> None:
    store, options = unpacked(case, tmp_path)
    assert [name for name in names_in(store) if part_of(name) is None and name not in ELSEWHERE] == []
    verb = "salvage" if case == roles.SLAVE else "export"  # its last message is torn
    result = rmqtool(verb, store, tmp_path / "new", *options, "--output", "json")
    assert result.code == (case == roles.SLAVE), result.err
    told = {row["part"]: row for row in json.loads(result.out)["parts"]}
    assert told.keys() == {part.name for name in names_in(store) if (part := part_of(name)) is not None}
    new = {part.name for name in names_in(tmp_path / "new") if (part := part_of(name)) is not None}
    for part in PARTS:
        if part.name in told:
            assert told[part.name]["fate"] == part.fate
            if part.fate is Fate.LEFT_OUT:
                assert part.name not in new
                assert told[part.name]["words"]
            elif part.name in _TIMER and part.name not in new:  # no message has waited, or that is not known
                removed = "the timer's files are removed" in result.out
                assert removed or not (tmp_path / "new" / "consumequeue" / TIMER).exists()
            elif has_content(store, part.name):
                assert new & {*(part.into or (part.name,))}, part


def has_content(store: Path, name: str) -> bool:
    """Whether a folder is more than a folder, and a file more than its name."""
    for path in store.glob(name):
        files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
        if any(
            re.search(rb"[^\0]", file.read_bytes()[:1_000_000]) for file in files if file.name != "position-checkpoint"
        ):
            return True
    return False


def test_a_store_with_every_other_part(tmp_path: Path) -> None:
    """Of real stores none has these, or all of them."""
    store = goldens.unpack("broker-5.5.0", tmp_path)
    for name in ("RocksDBMessageStore", "transaction", "tieredstore"):
        (store / name).mkdir()
    for name in ("timercheck", "abort", "timerwheel.52.tmp"):
        (store / name).touch()
    shutil.copy(store / "timerwheel", store / "timerwheel.52")
    (store / "config" / "topicQueueMapping.json").write_text('{"topicQueueMappingInfoMap":{}}')
    queues = rocks.content(goldens.unpack("rocksdb-5.5.0", tmp_path / "other") / "consumequeue")
    rocks.write(store / "consumequeue_rocksdb", queues)
    for name, table in (("users", USERS), ("acls", ACLS)):
        rocks.write(store / "config" / name, {"default": {k: json.dumps(v).encode() for k, v in table.items()}})
    before = json.loads(rmqtool("salvage", store, tmp_path / "new", "--output", "json").out)
    told = {row["part"]: row["fate"] for row in before["parts"]}
    assert {*MADE} <= told.keys()
    for name in ("config/users", "config/acls", "config/topicQueueMapping.json", "timerwheel"):
        assert (tmp_path / "new" / name).exists()
    for name in ("consumequeue_rocksdb", "abort", "transaction", "timercheck", "timerwheel.52"):
        assert not (tmp_path / "new" / name).exists()


def test_the_list_is_whole() -> None:
    seen = {*MADE}
    for packed in goldens.STORES.parent.rglob("*.tar.xz"):
        with tarfile.open(packed) as members:
            names = (member.name.partition("/")[2] for member in members if member.isfile())
            seen |= {part.name for name in names if (part := part_of(name)) is not None}
    assert seen == {part.name for part in PARTS}
    for part in PARTS:
        assert {*part.commands} <= {*COMMANDS}, part
        assert part.words or part.fate is Fate.KEPT, part
