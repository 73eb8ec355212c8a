"""One JVM per engine version and test process, for all tests here."""

from collections.abc import Iterator

import pytest

from tests.interop.engine import VERSIONS, Engine, available


def _engine(version: str) -> Iterator[Engine]:
    if reason := available(version):
        pytest.skip(reason)
    with Engine(version) as engine:
        yield engine


@pytest.fixture(scope="session")
def engine_4() -> Iterator[Engine]:
    """RocketMQ 4.9.8."""
    yield from _engine("4.9.8")


@pytest.fixture(scope="session")
def engine_5() -> Iterator[Engine]:
    """RocketMQ 5.3.3."""
    yield from _engine("5.3.3")


@pytest.fixture(params=VERSIONS)
def engine(request: pytest.FixtureRequest) -> Engine:
    """Each of them in turn."""
    return request.getfixturevalue(f"engine_{request.param[0]}")
