"""Services, copies and new stores under realistic circumstances: as on a plain disk, message by message.

Times depend on the clock, so messages and positions are compared instead of bytes.
"""

import json
import resource
import shutil
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from rmqtool import NewMessage, Store
from rmqtool.rules.releases import V5_3
from rmqtool.services.open_store.broker_state import BrokerState
from tests.amounts import by_turns, every
from tests.goldens import unpack
from tests.model.circumstances import CIRCUMSTANCES, Place, compaction_elsewhere
from tests.model.commands import run
from tests.model.neighbours import Neighbour
from tests.model.serving import serve_and_send

SIZES = {
    "mappedFileSizeCommitLog": "65536", "mappedFileSizeConsumeQueue": "400", "maxHashSlotNum": "17",
    "maxIndexNum": "60", "mappedFileSizeTimerLog": "1040",
}  # fmt: skip
NAMES = ("no-utf8", "link", "index-and-config-elsewhere", "few-descriptors", "another-user")
ROWS = [{"topic": f"S{n % 5}", "queueId": n % 3, "body": f"served {n}", "keys": f"s{n}"} for n in range(30)]


@pytest.fixture(scope="module")
def conf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("conf") / "broker.conf"
    path.write_text("".join(f"{name}={value}\n" for name, value in SIZES.items()))
    return path


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with delayed messages, timer messages, dead letters, and offsets of a group."""
    path = tmp_path_factory.mktemp("whole") / "store"
    hour_ago = int(time.time() * 1000) - 3_600_000
    with Store.create(path, broker_conf=SIZES, release=V5_3, clock=lambda: hour_ago) as store:
        for n in range(30):
            store.append(NewMessage(topic=f"T{n % 2}", queue_id=n % 2, body=b"plain %d" % n, keys=f"k{n}"))
            store.append(NewMessage(topic="T0", body=b"level %d" % n, properties={"DELAY": "2"}))
            store.append(NewMessage(topic="T1", body=b"timer %d" % n, properties={"TIMER_DELAY_SEC": "9"}))
            store.append(NewMessage(topic="%DLQ%G", body=b"dead %d" % n, properties={"RETRY_TOPIC": "T0"}))
    (path / "timerlog").mkdir(exist_ok=True)  # as a broker of 5.x makes it at once
    offsets = {"offsetTable": {"T0@G": {"0": 3}, "T1@G": {"1": 4}}}
    (path / "config" / "consumerOffset.json").write_text(json.dumps(offsets))
    for value in path.rglob("*"):
        value.chmod(0o755 if value.is_dir() else 0o644)
    return path


@pytest.fixture(scope="module")
def origin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Neighbour]:
    path = tmp_path_factory.mktemp("origin") / "store"
    with Store.create(path, broker_conf=SIZES) as store:
        state = BrokerState(store, lambda _text: None)
        state.ensure_topic("Mirrored", 4)
        state.persist()
        for n in range(60):
            store.append(NewMessage(topic="Mirrored", queue_id=n % 4, body=b"mirrored %d" % n))
    with Neighbour(path, SIZES) as neighbour:
        yield neighbour


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Neighbour]:
    with Neighbour(tmp_path_factory.mktemp("target") / "store") as neighbour:
        yield neighbour


Places = list[tuple[str, int, int, str]]


def places(store: Path, conf: Path) -> Places:
    """Topic, queue, queue offset and body of every message."""
    result = run("commitlog", "dump", store, "--output", "ndjson", "--broker-conf", conf)
    rows = [json.loads(line) for line in result.out.splitlines()]
    return sorted((row["topic"], row["queueId"], row["queueOffset"], row["body"]) for row in rows)


def evening(place: Place, conf: Path, origin: Neighbour, target: Neighbour) -> Iterator[tuple[str, Any]]:
    """The result of every step."""
    sizes = ["--broker-conf", str(conf)]
    beside = place.store.parent

    def step(*args: object, **more: Any) -> int:
        done = place.run(*map(str, args), *sizes, **more)
        assert "Traceback" not in done.err, done.err
        if place.after is not None:
            place.after(place.store)
        return done.code

    def there(store: Path) -> Places:
        return places(store, conf)

    yield "run", (step("run", "STORE", "--until", "delivered"), there(place.store))
    yield "requeue", (step("dlq", "requeue", "STORE", "G", "--yes"), there(place.store))
    yield "clone", step("group", "clone", "STORE", "G", "H", "--yes")
    offsets = json.loads(run("offsets", place.store, "--output", "json", *sizes).out)
    yield "offsets", [(row["topic"], row["group"], row["queueId"], row["consumerOffset"]) for row in offsets]
    served = partial(serve_and_send, place.name or str(place.store), str(conf), ROWS)
    yield "serve", (step("serve", "STORE", instead=served), there(place.store))
    yield "mirror", (step("mirror", "--namesrv", origin.namesrv, "Mirrored", "STORE"), there(place.store))
    args = ("replay", "STORE", "--namesrv", target.namesrv, "--journal", beside / "journal", "--to", "Copied")
    yield "replay", (step(*args), step(*args))
    yield "salvage", (step("salvage", "STORE", beside / "salvaged"), there(beside / "salvaged"))
    yield "export", step("salvage", "STORE", beside / "rows.ndjson", "--to", "ndjson")
    yield "import", (step("import", beside / "imported", beside / "rows.ndjson"), there(beside / "imported"))
    yield "dump", step("dump-to-parquet", "STORE", beside / "dump", "--runner", "local")
    yield "import of it", (step("import", beside / "again", beside / "dump"), there(beside / "again"))
    yield "init", step("init", beside / "new")
    for part in ("config", "timer"):
        yield f"rebuild {part}", step("rebuild", "STORE", part, "--yes")
    yield "check", step("check", "STORE")
    yield "in the end", there(place.store)


@pytest.fixture(scope="module")
def expected(
    whole: Path, conf: Path, origin: Neighbour, target: Neighbour, tmp_path_factory: pytest.TempPathFactory
) -> list[tuple[str, Any]]:
    """The results on a plain disk."""
    store = shutil.copytree(whole, tmp_path_factory.mktemp("plain") / "store")
    seen = list(evening(Place(store), conf, origin, target))
    for name, came in seen:
        assert name in ("offsets", "in the end") or (came[0] if isinstance(came, tuple) else came) == 0, (name, came)
    bodies = [body for _topic, _queue, _offset, body in dict(seen)["in the end"]]
    for kind, times in (("plain", 1), ("level", 2), ("timer", 2), ("dead", 2)):
        assert sum(body.startswith(kind) for body in bodies) == 30 * times
    assert sum(body.startswith("served") for body in bodies) == len(ROWS)
    assert sum(body.startswith("mirrored") for body in bodies) == 60
    return seen


@by_turns(13)
@pytest.mark.parametrize("name", every(4, list(NAMES)))
def test_an_evening_ends_as_on_a_plain_disk(
    name: str, whole: Path, conf: Path, origin: Neighbour, target: Neighbour, expected: list[tuple[str, Any]],
    tmp_path: Path,
) -> None:  # fmt: skip
    with CIRCUMSTANCES[name](whole, tmp_path) as place:
        if place.limits:  # a broker has sockets besides
            place.limits = {resource.RLIMIT_NOFILE: 64}
        for (step, came), (_step, wanted) in zip(evening(place, conf, origin, target), expected, strict=True):
            assert came == wanted, step


@pytest.mark.parametrize("name", ["hard-to-quote", "link", "another-user", "compaction-elsewhere"])
def test_a_compaction_log_is_made_anew_anywhere(name: str, tmp_path: Path) -> None:
    whole = unpack("compaction-5.3.3", tmp_path / "whole")
    for value in whole.rglob("*"):
        value.chmod(0o755 if value.is_dir() else 0o644)
    with {**CIRCUMSTANCES, "compaction-elsewhere": compaction_elsewhere}[name](whole, tmp_path) as place:
        shutil.rmtree(place.store / "compaction" / "compactionCq" / "Prices" / "0")
        before = run("check", place.store).code
        done = place.run("rebuild", "STORE", "compaction", "--yes")
        assert done.code == 0, done
        if place.after is not None:
            place.after(place.store)
        assert (before, run("check", place.store).code) == (1, 0)
