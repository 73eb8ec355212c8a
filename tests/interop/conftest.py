"""One JVM per engine or broker version and test process, for all tests here."""

from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from tests.amounts import ALL, turn_of
from tests.interop import broker as brokers
from tests.interop import client as java_client
from tests.interop.broker import Broker
from tests.interop.client import Client
from tests.interop.engine import NEWEST, VERSIONS, Engine, available
from tests.interop.pairs import Pairs
from tests.interop.replicas import CONTROLLER_OPTIONS

J = TypeVar("J", Engine, Broker)
# In these modules unmodified clients and brokers have time limits of their own (3 s for a request, 5 s for a poll),
# which a busy machine exceeds. They are tried twice, and a second try is told at the end of the run. What says that
# nothing is lost is not among them: it has one try.
_WITH_CLOCKS = frozenset(
    f"test_{name}"
    for name in (
        *("client", "client_access", "client_duties", "client_rules", "consuming", "consuming_asked", "orderly"),
        *("popping_client", "follow", "languages", "mqadmin", "namesrv", "namesrv_same", "recall", "sql92", "tls"),
    )
)
_SAME_PROGRAM = "test_the_same_program_has_the_same_results"
# What programs of both releases do for minutes, against one of them in a run: this one where TURN is even, else the
# other. Their tests are dealt by odd numbers of runs, so that each meets both.
OF_ONE_RELEASE = {
    f"test_{name}": turn_of(brokers.VERSIONS, first)
    for first, names in (
        (0, ("client_access", "consuming_asked", "mqadmin", "offsets", "orderly", "several_brokers", "tls")),
        (1, ("client", "client_duties", "consuming", "copying", "failover", "follow", "namesrv", "sql92")),
    )
    for name in names
}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Retry tests with real clients once, and use one release for programs that run for minutes."""
    here = Path(__file__).parent
    other = []
    for item in items:
        if item.path.parent != here:
            continue
        if item.path.stem in _WITH_CLOCKS or item.name.startswith(_SAME_PROGRAM):
            item.add_marker(pytest.mark.flaky(reruns=1, reruns_delay=5))
        wanted = OF_ONE_RELEASE.get(item.path.stem)
        if wanted is not None and not ALL and not _is_of(item, wanted):
            other.append(item)
    if other:
        config.hook.pytest_deselected(items=other)
        left_out = set(other)
        items[:] = [item for item in items if item not in left_out]


def _is_of(item: pytest.Item, release: str) -> bool:
    """Whether a test belongs to a release, or to none."""
    releases = [value for value in brokers.VERSIONS if value in item.name]
    return not releases or release in releases


def _judge(kind: type[J], version: str) -> Iterator[J]:
    if reason := (available if kind is Engine else brokers.available)(version):
        pytest.skip(reason)
    with kind(version) as judge:
        yield judge


@pytest.fixture(scope="session")
def engine_4() -> Iterator[Engine]:
    """RocketMQ 4.9.8."""
    yield from _judge(Engine, "4.9.8")


@pytest.fixture(scope="session")
def engine_5() -> Iterator[Engine]:
    """RocketMQ 5.3.3."""
    yield from _judge(Engine, "5.3.3")


@pytest.fixture(params=VERSIONS)
def engine(request: pytest.FixtureRequest) -> Engine:
    """Each of them in turn."""
    return request.getfixturevalue(f"engine_{request.param[0]}")


@pytest.fixture(scope="session")
def broker_4() -> Iterator[Broker]:
    """A broker of 4.9.8 with its clients."""
    yield from _judge(Broker, "4.9.8")


@pytest.fixture(scope="session")
def broker_5() -> Iterator[Broker]:
    """A broker of 5.3.3 with its clients."""
    yield from _judge(Broker, "5.3.3")


# one process per version keeps it: a broker with its clients takes long to start
@pytest.fixture(params=[pytest.param(v, marks=pytest.mark.xdist_group(f"broker-{v}")) for v in brokers.VERSIONS])
def broker(request: pytest.FixtureRequest) -> Broker:
    """Each of them in turn."""
    return request.getfixturevalue(f"broker_{request.param[0]}")


@pytest.fixture(scope="session")
def clients_4() -> Iterator[Broker]:
    """Clients of 4.9.8 in a JVM separate from the broker's."""
    yield from _judge(Broker, "4.9.8")


@pytest.fixture(scope="session")
def clients_5() -> Iterator[Broker]:
    """Clients of 5.3.3 in a JVM separate from the broker's."""
    yield from _judge(Broker, "5.3.3")


@pytest.fixture
def clients(request: pytest.FixtureRequest, broker: Broker) -> Broker:
    """Clients of the broker's version in a separate JVM, so that both work in parallel."""
    return request.getfixturevalue(f"clients_{broker.engine[0]}")


@pytest.fixture(scope="module")
def pairs() -> Iterator[Pairs]:
    """Real brokers and ours in parallel, for all programs of a module."""
    made = Pairs()
    yield made
    made.close()


@pytest.fixture(scope="module")
def brokers_5_5() -> Iterator[tuple[Broker, Broker]]:
    """Two JVMs of the newest release."""
    if reason := brokers.available(NEWEST):
        pytest.skip(reason)
    with Broker(NEWEST) as master, Broker(NEWEST) as replica:
        yield master, replica


@pytest.fixture(params=brokers.VERSIONS)
def own_broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """A broker in its own JVM: 5.3 shares access rules among those of a process, and admin tools see them all."""
    if reason := brokers.available(request.param):
        pytest.skip(reason)
    with Broker(request.param) as judge:
        yield judge


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    """Classes of the real 4.9.8 client."""
    if reason := java_client.available():
        pytest.skip(reason)
    with Client() as made:
        yield made


@pytest.fixture(scope="module")
def controlling() -> Iterator[Broker]:
    """The JVM for controllers, run one after another on different ports."""
    if reason := brokers.available("5.3.3"):
        pytest.skip(reason)
    with Broker("5.3.3", *CONTROLLER_OPTIONS) as jvm:
        yield jvm
