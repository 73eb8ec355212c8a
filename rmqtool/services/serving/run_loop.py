"""Background services of an open store: deliver due messages, check transactions, persist offsets.

Nobody else writes to the store meanwhile, so nothing is polled: the time of the next due message is known.

Source: store.schedule.ScheduleMessageService, store.timer.TimerMessageStore,
broker.transaction.TransactionalMessageCheckService, broker.BrokerController (the scheduled persisting);
message-services 10.4, 11.5, 13.1.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

from formats.variants import timer
from rmqtool.progress import stage
from rmqtool.services.delays.delivery import Delivered, Delivery
from rmqtool.services.lookup.configs import Warn
from rmqtool.services.lookup.queue_messages import TopicQueues
from rmqtool.services.open_store.broker_state import BrokerState, setting
from rmqtool.services.open_store.store import Store
from rmqtool.services.timers.delivery import LEVEL, TimerService
from rmqtool.services.transactions.rules import CheckCounts, Decide
from rmqtool.services.transactions.service import TransactionService

_SHORTEST, _LONGEST = 100, 1_000  # ms of a pause: as in a broker; short enough to notice that the clock was set
_AFTER_A_FAILURE = 10_000  # ms until a blocked level is retried
_COUNTS = ("delivered", "discarded", "skipped", "rolled", "recalled")

Wait = Callable[[int], None]
"""Waits for a number of ms, or less."""


@dataclass(slots=True, kw_only=True)
class RunReport:
    """Counts of what the services did. Times are ms since the epoch."""

    store: str
    startTimestamp: int
    endTimestamp: int = 0
    delivered: int = 0
    discarded: int = 0
    skipped: int = 0
    stuck: list[int] = field(default_factory=list)  # blocked levels; 0 is the timer
    checked: int = 0
    committed: int = 0
    rolledBack: int = 0
    unknown: int = 0
    givenUp: int = 0
    immune: int = 0
    nextTimestamp: int | None = None  # when the next delayed message is due
    rolled: int = 0  # timer messages re-inserted because they were beyond the wheel's range
    recalled: int = 0  # recalled timer messages

    def to_dict(self) -> dict[str, Any]:
        """The fields for machine output."""
        return asdict(self)


class RunLoop:
    """The services of a store that is open for writing, by the store's clock.

    Args:
        decide: called to check a transaction; None leaves transactions alone.
        check_at_once: check transactions immediately instead of after the first interval, which gives producers time to
            connect.
    """

    def __init__(self, store: Store, warn: Warn, decide: Decide | None = None, *, check_at_once: bool = True) -> None:
        self.store, self.warn, self._decide = store, warn, decide
        self.state = BrokerState(store, warn)
        self.delivery = Delivery(store, self.state, warn)
        self.transactions = TransactionService(store, self.state, warn)
        conf = store.layout.conf
        every = store.live.release.transaction_check_interval
        self._check_every = setting(conf, "transactionCheckInterval", every)
        self._persist_every = min(
            setting(conf, "flushDelayOffsetInterval", 10_000), setting(conf, "flushConsumerOffsetInterval", 5_000)
        )
        self._clock = store.live.clock
        now = self._clock()
        self.report = RunReport(store=store.layout.root, startTimestamp=now)
        self._latest = now
        self._deliver_at: int | None = now
        self._check_at = now if check_at_once else now + self._check_every
        self._persist_at = now + self._persist_every
        self._waiting = True  # whether there are waiting messages that can be delivered
        self.timer = self._timer_service()
        self._timer_every = setting(conf, "timerFlushIntervalMs", 1000)
        self._timer_persist_at = now + self._timer_every
        self._timer_again = now  # when a blocked timer is retried

    def _timer_service(self) -> TimerService | None:
        """The timer; None if a broker would have none."""
        rules = self.store.live.timer_rules
        if rules is not None and rules.enabled:
            return TimerService(self.store, self.warn)
        if any(queue.max_offset for queue in TopicQueues(self.store.layout).of(timer.TOPIC)):
            self.warn(f"{timer.TOPIC}: timer messages wait, and a broker of this release and settings has no timer")
        return None

    def look_again(self) -> None:
        """Note that a delayed message was stored."""
        self._deliver_at = self._latest if self._deliver_at is None else min(self._deliver_at, self._latest)

    def is_timer_in_time(self) -> bool:
        """Whether the timer has delivered everything that is due."""
        if self.timer is None or self.timer.stuck:
            return self.timer is None
        return (due := self.timer.next_time) is None or due > self._clock()

    def _time(self) -> int:
        """The current time. If the clock was set back, pending times are adjusted."""
        now = self._clock()
        if self.timer is not None:
            self.timer.clock_moved(now - self._latest)
        if (back := self._latest - now) > 0:
            self._check_at -= back
            self._persist_at -= back
            self._timer_persist_at -= back
            self._timer_again -= back
            if self._deliver_at is not None:
                self._deliver_at = now  # a time that is now too far away means at once
        self._latest = now
        return now

    def persist_when_due(self) -> None:
        """Persist offsets at intervals, which limits what is delivered twice after a kill."""
        now = self._time()
        # set the next time first, so that a failed write is not retried at once
        if now >= self._persist_at:
            self._persist_at = now + self._persist_every
            self.state.persist()
        if self.timer is not None and now >= self._timer_persist_at:
            self._timer_persist_at = now + self._timer_every
            self.timer.persist()

    def step(self, stop: Callable[[], bool] = lambda: False) -> None:
        """Do the work that is due."""
        now = self._time()
        if self._decide is not None and now >= self._check_at and not stop():
            self._check_at = now + min(self._check_every, _AFTER_A_FAILURE)
            self._add(self.transactions.check(self._decide, stop, begun=self.transactions.stopped_round))
            now = self._time()
            self._check_at = now if self.transactions.stopped_round is not None else now + self._check_every
            self._deliver_at = now  # a committed message may be a delayed one
        if self._deliver_at is not None and now >= self._deliver_at and not stop():
            done = Delivered()
            try:
                self.delivery.deliver_due(now, stop, done=done, after_each=self.persist_when_due)
            finally:
                self._count(done)
                self.report.stuck = done.stuck
            now = self._time()
            self.report.nextTimestamp = self._deliver_at = self.delivery.next_time(now, done.stuck)
            self._waiting = self._deliver_at is not None
            if done.stuck:
                again = now + _AFTER_A_FAILURE
                self._deliver_at = again if self._deliver_at is None else min(self._deliver_at, again)
        if self.timer is not None:
            self._step_timer(self.timer, stop)
        self.persist_when_due()

    def _step_timer(self, timers: TimerService, stop: Callable[[], bool]) -> None:
        now = self._time()
        if timers.stuck and now >= self._timer_again:
            timers.look_again()
        due = timers.next_time
        if due is not None and now >= due and not stop():
            done = Delivered()
            try:
                with stage("delivering timer messages", unit="messages") as delivering:

                    def after() -> None:
                        delivering.done += 1
                        self.persist_when_due()

                    timers.step(now, stop, done=done, after_each=after)
            finally:
                self._count(done)
            if timers.stuck:
                self._timer_again = now + _AFTER_A_FAILURE
        levels = [level for level in self.report.stuck if level != LEVEL]
        self.report.stuck = [LEVEL, *levels] if timers.stuck else levels
        times = [time for time in (self._deliver_at, timers.next_time) if time is not None]
        self.report.nextTimestamp = min(times, default=None)

    def _count(self, done: Delivered) -> None:
        for name in _COUNTS:
            setattr(self.report, name, getattr(self.report, name) + getattr(done, name))

    def finish(self) -> None:
        """Persist all positions, before the store is closed."""
        if self.timer is not None:
            done = Delivered()
            try:
                self.timer.finish(done)
            finally:
                self._count(done)
        self.state.persist()

    def _add(self, done: CheckCounts) -> None:
        for name, count in done.to_dict().items():
            setattr(self.report, name, getattr(self.report, name) + count)

    def run(
        self,
        wait: Wait,
        *,
        once: bool = False,
        until: int | None = None,
        until_delivered: bool = False,
        stop: Callable[[], bool] = lambda: False,
    ) -> RunReport:
        """Run until it is time to stop, then persist offsets, even after an error. The store stays open.

        Args:
            wait: called between two steps.
            once: do a single step.
            until: ms since the epoch; stop at this time.
            until_delivered: stop once no deliverable message is waiting. Messages behind an undeliverable one are not
                waited for; the report lists their levels.
            stop: called repeatedly; true ends the run.
        """
        try:
            self._go_on(wait, once=once, until=until, until_delivered=until_delivered, stop=stop)
        except BaseException:
            self.state.persist_what_is_stored()
            raise
        self.finish()
        self.report.endTimestamp = self._clock()
        return self.report

    def _go_on(
        self, wait: Wait, *, once: bool, until: int | None, until_delivered: bool, stop: Callable[[], bool]
    ) -> None:
        while not stop() and (until is None or self._time() < until):
            self.step(stop)
            timed = self.timer is not None and self.timer.waiting
            if once or (until_delivered and not self._waiting and not timed):
                break
            now = self._time()
            next_at = self._persist_at
            timed_at = self.timer.next_time if self.timer is not None else None
            for time in (self._deliver_at, timed_at, self._check_at if self._decide is not None else None, until):
                next_at = next_at if time is None else min(next_at, time)
            wait(min(max(next_at - now, _SHORTEST), _LONGEST))
