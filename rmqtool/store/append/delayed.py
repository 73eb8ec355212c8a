"""Messages for later delivery: the topic under which they wait, and their properties there.

Messages with a delay level wait in a queue of ``SCHEDULE_TOPIC_XXXX``. In 5.x a message may specify a time instead; it
waits in ``rmq_sys_wheel_timer`` until the timer takes it over.

Source: broker.util.HookUtils (handleScheduleMessage, transformTimerMessage, transformDelayLevelMessage) of 5.3.3, and
store.CommitLog of 4.9.8; store-engine 7.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from formats.message.properties import DELAY, REAL_QID, REAL_TOPIC
from formats.message.read import SCHEDULE_TOPIC, java_int
from formats.primitives import TRANSACTION_COMMIT, TRANSACTION_MASK, TRANSACTION_NONE
from formats.variants import timer
from rmqtool.store.append.answers import Illegal, PutStatus
from rmqtool.store.layout.broker_conf import BrokerConf

SCHEDULE = SCHEDULE_TOPIC.decode()
SPECIAL = frozenset(
    (DELAY, timer.DELIVER_MS, timer.DELAY_SEC, timer.DELAY_MS)
)  # properties that change a message's topic
SPECIAL_BYTES = (f"{DELAY}\x01".encode(), *(f"{name}\x01".encode() for name in timer.REQUESTS))
LONGEST_DELAY = 3 * 24 * 3600  # s
_NO_LIMIT = 2**31 - 1

Place = tuple[str, int]  # topic and queue id


@dataclass(slots=True, kw_only=True)
class TimerRules:
    """The timer's conditions for messages (5.x).

    Attributes:
        enabled: ``timerWheelEnable``.
        precision: ms of one slot (``timerPrecisionMs``).
        longest: longest delay in ms (``timerMaxDelaySec``).
        most: number of messages in a slot above which some are rejected; from twice that number on, all are
            (``timerCongestNumEachSlot``).
        ahead: ms by which the wheel is ahead of a clock that was set back.
        count: returns the number of messages in a slot, given its time in ms; not called with the default ``most``.
        clock: milliseconds since the epoch.
    """

    clock: Callable[[], int]
    enabled: bool = True
    precision: int = 1000
    longest: int = 1000 * LONGEST_DELAY
    most: int = _NO_LIMIT
    ahead: int = 0
    count: Callable[[int], int] = lambda _time: 0
    random: Random = field(default_factory=Random)

    @classmethod
    def of(cls, conf: BrokerConf, clock: Callable[[], int]) -> "TimerRules":
        """The conditions in a broker's settings.

        Raises:
            CorruptFile: one of them is not a number.
        """
        return cls(
            clock=clock,
            enabled=conf.flag("timerWheelEnable", True),
            precision=conf.timer_precision,
            longest=1000 * conf.number("timerMaxDelaySec", LONGEST_DELAY),
            most=conf.number("timerCongestNumEachSlot", _NO_LIMIT),
        )

    def out_time(self, named: dict[str, str]) -> int | None:
        """The time in ms at which the wheel releases a message; None if it is due at once.

        This is the end or the start of the second of delivery; a broker reads the slot a second later.

        Raises:
            Illegal: there is no timer, the time is invalid or too far away, or a recall refers to a message already
                due.
        """
        if not self.enabled:
            raise Illegal(
                PutStatus.WHEEL_TIMER_NOT_ENABLE, "accurate timer message is not enabled, timerWheelEnable is false"
            )
        now = self.clock()
        deliver = self._deliver_time(named, now)
        if timer.DELETE_KEY in named:
            now += self.ahead  # a recall names the slot of its message
        if deliver <= now:
            if timer.DELETE_KEY in named:
                raise self._illegal()
            return None
        if deliver - now > self.longest:
            raise self._illegal()
        if timer.DELETE_KEY not in named:
            deliver += self.ahead
        slots, rest = divmod(deliver, self.precision)
        out = (slots if rest else slots - 1) * self.precision
        if self.most < _NO_LIMIT:
            self._check_room(out)
        return out

    def _deliver_time(self, named: dict[str, str], now: int) -> int:
        for name, factor, base in ((timer.DELAY_SEC, 1000, now), (timer.DELAY_MS, 1, now), (timer.DELIVER_MS, 1, 0)):
            if name in named:
                number = java_int(named[name], 64)
                if number is None:
                    raise self._illegal()
                # wraps around like Java's long
                return (base + factor * number + 2**63) % 2**64 - 2**63
        raise AssertionError("nobody asked for a time")

    def _illegal(self) -> Illegal:
        return Illegal(
            PutStatus.WHEEL_TIMER_MSG_ILLEGAL,
            f"timer message illegal, the delay time should not be bigger than the max delay {self.longest}ms; or if "
            "set del msg, the delay time should be bigger than the current time",
        )

    def _check_room(self, out: int) -> None:
        count, most = self.count(out), self.most
        if count <= most:
            return
        if count >= 2 * most or self.random.randrange(1000) > 1000 * (count - most) / (most + 0.1):
            raise Illegal(
                PutStatus.WHEEL_TIMER_FLOW_CONTROL,
                f"timer message is under flow control, max num limit is {2 * most} or the current value is greater "
                f"than {most} and less than {2 * most}, trigger random flow control",
            )


def waiting_place(
    topic: str, queue_id: int, named: dict[str, str], sys_flag: int, levels: int, rules: TimerRules | None
) -> Place | None:
    """(topic, queue id) under which a message waits, recorded in its properties; None if it is not delayed.

    Args:
        levels: number of delay levels.
        rules: of the timer; None for an engine without one.

    Raises:
        Illegal: the delay is not acceptable.
    """
    if sys_flag & TRANSACTION_MASK not in (TRANSACTION_NONE, TRANSACTION_COMMIT):
        return None
    level = _delay_level(named, levels)
    place = None
    if level:
        named |= {DELAY: str(level), REAL_TOPIC: topic, REAL_QID: str(queue_id)}
        place = SCHEDULE, level - 1
        if rules is not None:
            for name in timer.REQUESTS:
                named.pop(name, None)
    elif (
        rules is not None
        and topic != timer.TOPIC
        and timer.OUT_MS not in named
        and any(name in named for name in timer.REQUESTS)
        and (out := rules.out_time(named)) is not None
    ):
        named |= {timer.OUT_MS: str(out), REAL_TOPIC: topic, REAL_QID: str(queue_id)}
        place = timer.TOPIC, timer.QUEUE_ID
    return place


def _delay_level(named: dict[str, str], levels: int) -> int:
    """The level of a delayed message, limited to the highest level; 0 if it is not delayed."""
    if DELAY not in named:
        return 0
    level = java_int(named[DELAY])
    if level is None:
        raise Illegal(PutStatus.MESSAGE_ILLEGAL, f"delay level {named[DELAY][:80]!r} is not a number")
    return max(min(level, levels), 0)


def check_timer_message(named: dict[str, str]) -> None:
    """Reject a message sent to the timer's own topic that would block all messages after it.

    Raises:
        Illegal: the timer cannot read its deliver time or its target.
    """
    out, queue_id = java_int(named.get(timer.OUT_MS, ""), 64), java_int(named.get(REAL_QID, ""))
    if out is None or queue_id is None or not named.get(REAL_TOPIC):
        text = f"{timer.TOPIC}: messages come into it by their deliver time, under their own topic"
        raise Illegal(PutStatus.MESSAGE_ILLEGAL, text)
