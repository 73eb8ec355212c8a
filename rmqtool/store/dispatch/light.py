"""Light queues: additional queues in a message's properties (multi-dispatch; store-engine 3.3).

Source: store.MultiDispatch, store.ConsumeQueue.multiDispatchLmqQueue.
"""

from collections.abc import Callable

from formats.topics import LMQ_PREFIX
from rmqtool.store.layout.broker_conf import BrokerConf


def is_light(topic: str) -> bool:
    """Whether this is the name of a light queue, which takes the place of a topic."""
    return topic.startswith(LMQ_PREFIX)


def light_queue_id(name: str, queue_id: int) -> int:
    """Queue id of an additional queue: light queues have only queue 0, others use the message's own queue id."""
    return 0 if is_light(name) else queue_id


def dispatches_to_light_queues(conf: BrokerConf, has_light_queues: Callable[[], bool]) -> bool:
    """Whether messages are dispatched to the additional queues in their properties.

    Args:
        has_light_queues: whether the store has such queues; called if the settings do not say.
    """
    for name in ("enableMultiDispatch", "enableLmq"):
        if conf.text(name) is not None:
            return conf.flag(name, False)
    return has_light_queues()
