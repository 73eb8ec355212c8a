"""RocketMQ's own integration tests pass where they pass with real brokers: see :mod:`tests.interop.own_tests`."""

import pytest

from tests.amounts import only_in_all
from tests.interop import broker as brokers
from tests.interop.own_tests.__main__ import VERSION, main

pytestmark = pytest.mark.interop


@only_in_all
def test_rocketmqs_own_tests() -> None:
    if reason := brokers.available(VERSION):
        pytest.skip(reason)
    assert main([]) == 0
