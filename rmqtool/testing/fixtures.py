"""Fixtures for pytest; a test module imports what it uses."""

from collections.abc import Iterator

import pytest

from rmqtool.testing.embedded import TestBroker, broker


@pytest.fixture
def rocketmq() -> Iterator[TestBroker]:
    """A broker with an empty store."""
    with broker() as served:
        yield served
