"""The services of a store, killed at every step: nothing is lost, and each message is delivered once."""

from collections import Counter
from pathlib import Path
from random import Random

import pytest

from formats.topics import DLQ_PREFIX, RETRY_PREFIX
from rmqtool import NewMessage, Store
from rmqtool.services.open_store.broker_state import BrokerState
from rmqtool.services.retries.send_back import SendBackStore
from rmqtool.services.serving.run_loop import RunLoop
from rmqtool.services.transactions.rules import CheckRequest, Decision
from rmqtool.services.transactions.service import TransactionService
from tests.amounts import by_turns
from tests.services.build import TIME, never
from tests.services.live import SIZES
from tests.services.run_samples import bodies, errors
from tests.store.crashes import Killed, Seam

pytestmark = pytest.mark.slow

CONF = SIZES | {"transactionCheckInterval": "1000", "transactionTimeOut": "500", "flushDelayOffsetInterval": "1000"}
GROUP = "G"


def prepare(path: Path) -> None:
    """A store with delayed messages, retries, dead letters and open half messages, all durable."""
    with Store.create(path, broker_conf=CONF, clock=lambda: TIME) as store:
        state = BrokerState(store, never)
        back, service = SendBackStore(store, state, Random(1)), TransactionService(store, state, never)
        for n in range(6):
            asked = {"DELAY": str(1 + n % 2), "UNIQ_KEY": f"d{n}"}
            assert store.append(NewMessage(topic="T", queue_id=n % 2, body=b"delay%d" % n, properties=asked)).ok
            given = NewMessage(topic="F", body=b"retry%d" % n, properties={"UNIQ_KEY": f"r{n}"})
            failed = store.append(given).physical_offset
            back.send_back(GROUP, failed, delay_level=1)
        for n in range(6):
            half = service.prepare(NewMessage(topic="T", body=b"half%d" % n, properties={"UNIQ_KEY": f"h{n}"}), GROUP)
            if n < 2:
                service.end(half.physical_offset, half.queue_offset, GROUP, [Decision.COMMIT, Decision.ROLLBACK][n])
        state.persist()


def decide(request: CheckRequest) -> Decision:
    number = int(request.record.body[-1:])
    return Decision.COMMIT if number % 2 == 0 else Decision.ROLLBACK


def serve(path: Path) -> None:
    """Run the services for seven seconds; one of the retries then becomes a dead letter."""
    now = [TIME + 1]

    def wait(millis: int) -> None:
        now[0] += millis

    with Store(path, write=True, broker_conf=CONF, sync_flush=True, mend=True, clock=lambda: now[0]) as store:
        loop = RunLoop(store, lambda _text: None, decide)  # it may say that a .bak is read
        loop.run(wait, until=TIME + 7000)
        store.dispatch()
        failed = store.get(RETRY_PREFIX + GROUP, 0, 0).messages
        if failed and not store.get(DLQ_PREFIX + GROUP, 0, 0).messages:
            SendBackStore(store, loop.state).send_back(GROUP, failed[0].physical_offset, delay_level=-1)
            loop.state.persist()


@by_turns(13)
@pytest.mark.parametrize("ending", ["killed", "power cut", "power cut here and there"])
def test_each_is_delivered_once(ending: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seam = Seam(monkeypatch)
    steps, stop = None, 0
    while steps is None:
        stop += 4 if ending == "killed" else 11
        path = tmp_path / f"s{stop}"
        seam.begin()
        prepare(path)
        seam.begin_with(path, stop)
        try:
            serve(path)
            steps = stop
        except Killed:
            pass
        seam.end(ending, path, stop)
        serve(path)
        delivered = Counter(bodies(path))
        wanted = {f"delay{n}" for n in range(6)} | {f"half{n}" for n in range(6) if n % 2 == 0}
        assert delivered.keys() == wanted, (stop, delivered)
        assert set(bodies(path, RETRY_PREFIX + GROUP)) == {f"retry{n}" for n in range(6)}, stop
        assert bodies(path, DLQ_PREFIX + GROUP), stop
        # a broker delivers again what it delivered since it last wrote its offsets
        assert max(delivered.values()) == 1, (stop, delivered)
        assert len(bodies(path, RETRY_PREFIX + GROUP)) == 6, stop
        assert errors(path, CONF) == [], stop
        assert not (path / "abort").exists()
    assert steps > 60
