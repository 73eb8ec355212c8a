"""A broker's settings for POP (common.BrokerConfig, 5.3.3)."""

from dataclasses import dataclass

from rmqtool.services.open_store.broker_state import setting
from rmqtool.store.append.delayed import LONGEST_DELAY
from rmqtool.store.layout.broker_conf import BrokerConf

_LONGEST = 300_000  # ms; upper limit of the invisible time


@dataclass(frozen=True, kw_only=True)
class PopSettings:
    """Settings of one broker. Times are ms.

    Attributes:
        timer: the broker has a timer, in which checkpoints wait; without it nothing is popped.
        newer_retry_topics: messages come back in ``%RETRY%GROUP+TOPIC``.
        older_too: those in ``%RETRY%GROUP_TOPIC`` are then popped too.
        retry_first: percentage of pops that read the retry topic first.
        priority_retry_first: the same for pops by priority.
        lowest_first: a low number is a high priority (``priorityOrderAsc=false``).
        actual_topic: messages of retry topics keep that topic in answers.
        from_memory: a new group begins at offset 0 of a queue that is entirely in memory, whatever it requests.
        most_waiting: maximum number of parked pops per queue of a group, and in total.
        longest_invisible: the longest delay that the timer allows (``timerMaxDelaySec``).
        ack_wait: how long an ack waits for its checkpoint.
        drop_after_all: give up a message that could not be revived after the last interval.
        foreign: leave checkpoints with another broker's name to that broker.
    """

    timer: bool = True
    revive_queues: int = 8
    newer_retry_topics: bool = False
    older_too: bool = True
    retry_first: int = 20
    priority_retry_first: int = 0
    lowest_first: bool = False
    actual_topic: bool = False
    from_memory: bool = True
    most_waiting: tuple[int, int] = (1024, 100_000)
    longest_wait: int = _LONGEST
    longest_invisible: int = LONGEST_DELAY * 1000
    ack_wait: int = 180_000
    drop_after_all: bool = False
    foreign: bool = False
    default_mode: str = "PULL"
    default_share: int = -1
    shares_here: bool = True

    @classmethod
    def of(cls, conf: BrokerConf) -> "PopSettings":
        """The settings in the broker's file."""
        share = conf.text("defaultPopShareQueueNum") or ""
        return cls(
            timer=conf.flag("timerWheelEnable", True),
            revive_queues=max(setting(conf, "reviveQueueNum", 8), 1),
            newer_retry_topics=conf.flag("enableRetryTopicV2", False),
            older_too=conf.flag("retrieveMessageFromPopRetryTopicV1", True),
            retry_first=setting(conf, "popFromRetryProbability", 20),
            priority_retry_first=setting(conf, "popFromRetryProbabilityForPriority", 0),
            lowest_first=not conf.flag("priorityOrderAsc", True),
            actual_topic=conf.flag("popResponseReturnActualRetryTopic", False),
            from_memory=conf.flag("initPopOffsetByCheckMsgInMem", True),
            most_waiting=(setting(conf, "popPollingSize", 1024), setting(conf, "maxPopPollingSize", 100_000)),
            longest_invisible=setting(conf, "timerMaxDelaySec", LONGEST_DELAY) * 1000,
            ack_wait=setting(conf, "reviveAckWaitMs", 180_000),
            drop_after_all=conf.flag("skipWhenCKRePutReachMaxTimes", False),
            foreign=conf.flag("enableSlaveActingMaster", False),
            default_mode=conf.text("defaultMessageRequestMode") or "PULL",
            default_share=int(share) if share.isascii() and share.isdigit() else -1,
            shares_here=conf.flag("serverLoadBalancerEnable", True),
        )
