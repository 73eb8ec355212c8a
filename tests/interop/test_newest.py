"""Stores of 5.5, which are made without a word about the release: served like a real 5.5.0 broker serves its own, to
clients of every release, and taken over by that broker.
"""

import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from formats.message.properties import REAL_QID, REAL_TOPIC, parse
from rmqtool import Store
from rmqtool.store.config.release import release_of
from rmqtool.store.layout.paths import StoreLayout
from tests.amounts import by_turns
from tests.cli.running import rmqtool
from tests.conftest import Unpacked
from tests.interop import broker as brokers
from tests.interop import test_serve
from tests.interop.broker import Broker
from tests.interop.engine import NEWEST
from tests.interop.pairs import SETTINGS, Pairs, Program
from tests.interop.serving import Serving

pytestmark = [pytest.mark.interop, pytest.mark.xdist_group(f"broker-{NEWEST}")]


@pytest.fixture(scope="module")
def newest() -> Iterator[Broker]:
    if reason := brokers.available(NEWEST):
        pytest.skip(reason)
    with Broker(NEWEST) as one:
        yield one


@pytest.fixture(scope="module")
def newest_clients(newest: Broker) -> Iterator[Broker]:
    with Broker(NEWEST) as one:
        yield one


@by_turns(23)
@pytest.mark.parametrize("program", test_serve.PROGRAMS, ids=lambda program: program.__name__)
def test_the_same_program_has_the_same_results(
    newest: Broker, newest_clients: Broker, pairs: Pairs, program: Program
) -> None:
    wanted, got = pairs.run(newest, newest_clients, program)
    assert got == wanted


@by_turns(17)
@pytest.mark.parametrize("version", brokers.VERSIONS)
def test_older_clients_and_then_a_real_broker(
    version: str, newest: Broker, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    clients: Broker = request.getfixturevalue(f"clients_{version[0]}")
    conf, store = tmp_path / "broker.conf", tmp_path / "store"
    conf.write_text(SETTINGS)
    sent = [f"k{n}" for n in range(40)]
    with Serving(store, "--create", "--broker-conf", str(conf)) as serving:
        clients.connect(serving.namesrv, serving.broker)
        for n, key in enumerate(sent):
            assert clients.ask("send", topic="Orders", keys=key, queueId=n % 4, tag="t")["status"] == "SEND_OK"
        clients.ask("sendHalf", group="tx", topic="Orders", keys="half", answer="commit", checked="commit")
        clients.ask("send", topic="Orders", keys="late", queueId=0, level=1)
        wanted = {*sent, "half", "late"}
        clients.ask("consume", group="g", topic="Orders", failures=1, most=5, level=1)
        seen = clients.wait_for(lambda rows: {r["keys"] for r in rows if r["reconsumeTimes"] == 1} == wanted)
        assert {row["keys"] for row in seen if row["reconsumeTimes"] == 1} == wanted
        clients.stop()
        serving.end(signal.SIGKILL if version[0] == "5" else signal.SIGTERM)
    assert release_of(StoreLayout(str(store))).version.minor == 5
    if version[0] == "5":  # what a kill has left is in order after the next start
        with Serving(store, "--broker-conf", str(conf)) as serving:
            assert serving.end()[0] == 0
    newest.boot(store, dict(line.split("=") for line in SETTINGS.split()))
    newest.ask("consume", group="other", topic="Orders", failures=0, most=1, level=0)
    got = Counter(row["keys"] for row in newest.wait_for(lambda rows: {r["keys"] for r in rows} == wanted))
    assert got == Counter(wanted)
    newest.ask("send", topic="Orders", keys="more", queueId=1)
    newest.stop()
    with Serving(store, "--broker-conf", str(conf)) as serving:
        clients.connect(serving.namesrv, serving.broker)
        clients.ask("consume", group="third", topic="Orders", failures=0, most=1, level=0)
        got = Counter(r["keys"] for r in clients.wait_for(lambda rows: {r["keys"] for r in rows} == {*wanted, "more"}))
        assert got == Counter({*wanted, "more"})
        clients.stop()
        assert serving.end()[0] == 0


@by_turns(17)
@pytest.mark.parametrize("made", ["salvaged", "imported", "appended"])
@pytest.mark.parametrize("version", ["5.3.3", NEWEST])
def test_a_store_without_its_topics_is_drained(
    version: str, made: str, request: pytest.FixtureRequest, golden_copy: Unpacked, tmp_path: Path
) -> None:
    clients: Broker = request.getfixturevalue("newest_clients" if version == NEWEST else "clients_5")
    old, store = golden_copy("broker"), tmp_path / "new"  # a whole broker of 4.9.8 wrote it
    for table in old.glob("config/topics.json*"):
        table.unlink()
    if made == "salvaged":
        assert rmqtool("salvage", old, store).code == 0
    else:
        rows = tmp_path / "rows.ndjson"
        rows.write_text(rmqtool("commitlog", "dump", old, "--topic", "Orders", "-o", "ndjson").out)
        if made == "appended":
            assert rmqtool("init", store).code == 0
        assert rmqtool("import" if made == "imported" else "append", store, rows).code == 0
    for table in store.glob("config/topics.json*"):
        table.unlink()
    with Store(store) as opened:
        wanted = {message.physical_offset for message in opened.messages() if message.topic == "Orders"}
    assert len(wanted) == 420
    with Serving(store) as serving:
        clients.connect(serving.namesrv, serving.broker)
        clients.ask("consume", group="drains", topic="Orders", failures=0, most=1, level=0)
        seen = clients.wait_for(lambda rows: {row["physicalOffset"] for row in rows} >= wanted)
        assert Counter(row["physicalOffset"] for row in seen) == Counter(wanted)
        for n in range(8):
            assert clients.ask("send", topic="Orders", keys=f"more-{n}", queueId=n % 4)["status"] == "SEND_OK"
        seen = clients.wait_for(lambda rows: len(rows) >= len(wanted) + 8)
        assert Counter(row["keys"] for row in seen if row["keys"].startswith("more-")) == Counter(
            f"more-{n}" for n in range(8)
        )
        clients.stop()
        assert serving.end()[0] == 0
    assert rmqtool("check", store, "--severity", "error").code == 0


@by_turns(17)
@pytest.mark.parametrize("release", ["5.3.3", NEWEST])
def test_messages_have_the_same_properties(
    release: str, newest: Broker, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """Up to 5.3 the properties of a batch are given to each of its messages."""
    broker: Broker = newest if release == NEWEST else request.getfixturevalue("broker_5")

    def send() -> None:
        test_serve.make(broker, "Orders")
        batch = [{"topic": "Orders", "keys": f"b{n}", "tag": "t", "properties": {"a": "1"}} for n in range(3)]
        assert broker.ask("sendBatch", messages=batch)["status"] == "SEND_OK"
        broker.ask("send", topic="Orders", keys="alone", tag="t", queueId=0)
        broker.ask("sendHalf", group="tx", topic="Orders", keys="half", answer="commit", checked="commit")

    def names(store: Path) -> list[tuple[str, bool, list[str]]]:
        """Topic, end of the properties, and their names, of each message."""
        with Store(store) as opened:
            found = [message.record for message in opened.messages()]
        mine = [record for record in found if record.topic == b"Orders"]
        # a broker of 5.5 takes the destination off a committed message; it says what topic and queue say
        kept = [sorted(parse(r.properties).keys() - {REAL_TOPIC, REAL_QID}) for r in mine]
        return sorted(
            (r.topic.decode(), r.properties.endswith(b"\x02"), names) for r, names in zip(mine, kept, strict=True)
        )

    conf = tmp_path / "broker.conf"
    conf.write_text(SETTINGS)
    broker.boot(tmp_path / "real", dict(line.split("=") for line in SETTINGS.split()))
    send()
    broker.stop()
    with Serving(tmp_path / "ours", "--create", "--engine", release[:3], "--broker-conf", str(conf)) as serving:
        broker.connect(serving.namesrv, serving.broker)
        send()
        broker.stop()
        assert serving.end()[0] == 0
    assert len(names(tmp_path / "real")) == 5
    assert names(tmp_path / "ours") == names(tmp_path / "real")
