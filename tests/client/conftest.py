"""A broker for the tests of a module."""

from collections.abc import Iterator

import pytest

from rmqtool.testing import TestBroker, broker


@pytest.fixture(scope="module")
def served() -> Iterator[TestBroker]:
    """A broker in this process, with a store of its own."""
    with broker() as running:
        yield running
