"""Engines and the stores they write, shared by both releases."""

import os
from collections.abc import Iterator

import pytest

from tests.interop.differential.bases import Base, make_bases
from tests.interop.differential.judge import Pool
from tests.interop.engine import LATEST, NEWEST, available

ENGINES = int(os.environ.get("RMQTOOL_DIFFERENTIAL_ENGINES", "4"))


def _engines(newer: str = "5.3.3") -> Iterator[Pool]:
    if reason := available("4.9.8") or available(newer):
        pytest.skip(reason)
    engines = Pool(ENGINES, newer)
    yield engines
    engines.close()


@pytest.fixture(scope="session")
def pool() -> Iterator[Pool]:
    """Pairs of engines."""
    yield from _engines()


@pytest.fixture(scope="session")
def stores_of_4(pool: Pool, tmp_path_factory: pytest.TempPathFactory) -> list[Base]:
    """Stores left by 4.9.8."""
    with pool.pair() as (old, _new):
        return make_bases(tmp_path_factory.mktemp("stores"), old)


@pytest.fixture(scope="session")
def stores_of_5(pool: Pool, tmp_path_factory: pytest.TempPathFactory) -> list[Base]:
    """Stores left by 5.3.3."""
    with pool.pair() as (_old, new):
        return make_bases(tmp_path_factory.mktemp("stores"), new)


@pytest.fixture(scope="session")
def newest_pool() -> Iterator[Pool]:
    """Pairs of engines of 4.9.8 and 5.5.0."""
    yield from _engines(NEWEST)


@pytest.fixture(scope="session")
def latest_pool() -> Iterator[Pool]:
    """Pairs of engines of 4.9.8 and 5.5.1."""
    yield from _engines(LATEST)


@pytest.fixture(scope="session")
def stores_of_newest(newest_pool: Pool, tmp_path_factory: pytest.TempPathFactory) -> list[Base]:
    """Stores left by 5.5.0."""
    with newest_pool.pair() as (_old, new):
        return make_bases(tmp_path_factory.mktemp("stores"), new)
