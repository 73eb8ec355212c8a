"""A RocketMQ broker for tests: embedded, on free ports, with a store that is thrown away.

from rmqtool.testing import broker

with broker() as served:
    run_my_program(namesrv=served.namesrv)
"""

from rmqtool.testing.embedded import TestBroker, broker

__all__ = ["TestBroker", "broker"]

try:
    from rmqtool.testing.fixtures import rocketmq
except ImportError:  # without pytest there are no fixtures
    pass
else:
    __all__ += ["rocketmq"]
