"""Damaged timers, loaded by 5.3.3 and recovered by rmqtool: compared slot by slot, and by deliveries.

``python -m tests.interop.differential.timers --count 2000`` runs any number; a failure names its seed, the damage, and
the directory of the damaged store.
"""

import re
import shutil
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from formats.message.properties import parse
from formats.variants import timer
from rmqtool.rules.releases import V5_3
from rmqtool.store.changes.writing import planning
from rmqtool.store.disk.sparse import copy_written
from rmqtool.store.layout.broker_conf import BrokerConf
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import CommitLog, LocatedRecord
from rmqtool.store.queues.reader import open_queue
from rmqtool.store.queues.timer.files import TimerFiles
from rmqtool.store.queues.timer.start import read_timer
from rmqtool.store.recovery.command import plan, recover
from rmqtool.store.recovery.inputs import StoreInputs
from rmqtool.store.recovery.plan import run_recovery
from rmqtool.store.recovery.timers import TimerAtStart
from tests.interop.differential import timer_damage
from tests.interop.differential.bases import sizes
from tests.interop.differential.command import options_of, report_cases
from tests.interop.engine import Engine
from tests.store.findings import check_store

SEED = 20261125
UNITS = 8  # in a file of the timer log
_LONGEST = 2_000  # units that the judge follows a chain
_PATIENCE = 20_000  # ms
_CONFIG = {**sizes(16384, 64, 61, 900), "mappedFileSizeTimerLog": UNITS * timer.UNIT_SIZE + timer.BLANK_SIZE}
Slots = dict[int, tuple[int, int, int, int]]  # by number: time, first and last position, count
Chains = dict[int, list[tuple[int, int, int]]]  # by time: offset, size and magic of each unit, the newest first


class TimerBase(NamedTuple):
    """A store left by the engine, with all its timer messages due by a time in ms."""

    name: str
    path: Path
    config: dict[str, Any]
    due: int

    @property
    def conf(self) -> BrokerConf:
        """The settings for rmqtool."""
        return BrokerConf({name: str(value).lower() for name, value in self.config.items()})


def copied(store: Path, to: Path) -> Path:
    """A sparse copy: the wheel is long and mostly empty."""

    def copy(source: str, target: str) -> None:
        if Path(source).stat().st_size < 1 << 20:
            shutil.copy2(source, target)
            return
        with open(target, "wb") as file:
            file.truncate(Path(source).stat().st_size)
            copy_written(source, file.fileno())

    shutil.copytree(store, to, copy_function=copy)
    return to


def make_bases(folder: Path, engine: Engine) -> list[TimerBase]:
    """Stores stopped cleanly, killed, killed before a flush, half delivered, and with re-inserted messages."""
    plans: list[tuple[str, dict[str, Any], float, bool, bool]] = [
        # name, settings, seconds until the first is due, killed, delivered for a while
        ("clean", {"timerStopDequeue": True, "timerFlushIntervalMs": 50}, 4, False, False),
        ("killed", {"timerStopDequeue": True, "timerFlushIntervalMs": 50}, 4, True, False),
        ("not-flushed", {"timerStopDequeue": True, "timerFlushIntervalMs": 60_000}, 4, True, False),
        ("half", {"timerFlushIntervalMs": 50}, 2, False, True),
        ("moved-on", {"timerStopDequeue": True, "timerFlushIntervalMs": 50, "timerRollWindowSlot": 6}, 4, False, False),
    ]
    result = []
    for name, settings, wait, kill, deliver in plans:
        config, path = {**_CONFIG, **settings}, folder / name
        begin = (int(time.time() + wait) + 1) * 1000
        puts = _messages(Random(name), begin)
        due = max(int(put["properties"]["TIMER_OUT_MS"]) for put in puts if "properties" in put)
        until = begin + 1_000 if deliver else 0
        seen = engine.timers(path, config, puts=puts, kill=kill, deliver_until=until, startTimeoutMillis=_PATIENCE)
        assert seen.get("quiet"), (name, seen)
        assert all(row["status"] == "PUT_OK" for row in seen["results"]), name
        config.pop("timerStopDequeue", None)
        result.append(TimerBase(name, path, config | {"timerFlushIntervalMs": 50}, due))
    return result


def _messages(rng: Random, begin: int) -> list[dict[str, Any]]:
    """Timer messages, marks that recall some, and other messages between them."""
    puts: list[dict[str, Any]] = []
    for number in range(45):
        out = begin + 1000 * rng.randrange(5)
        key = f"{number:032X}"
        puts.append(_message(out, key, rng.randbytes(rng.randint(1, 80))))
        if number % 9 == 4:
            puts.append(_message(out, f"{number + 500:032X}", b"mark", **{timer.DELETE_KEY: f"Real+{key}"}))
        if rng.random() < 0.2:
            puts.append({"topic": "Other", "queueId": 0, "body": rng.randbytes(40)})
    return puts


def _message(out: int, key: str, body: bytes, **more: str) -> dict[str, Any]:
    properties = {"TIMER_OUT_MS": str(out), "REAL_TOPIC": "Real", "REAL_QID": "0", "UNIQ_KEY": key, **more}
    return {"topic": timer.TOPIC, "queueId": 0, "body": body, "properties": properties}


@dataclass
class TimerCase:
    """One damaged timer, and the differences found."""

    seed: int
    base: TimerBase
    done: list[str]
    folder: Path
    problems: list[str] = field(default_factory=list)
    noted: Counter[str] = field(default_factory=Counter)

    def same(self, what: str, mine: Any, theirs: Any) -> bool:
        """Record a difference, if any."""
        if mine != theirs:
            self.problems.append(f"{what}: {_short(mine, theirs)}")
        return bool(mine == theirs)

    @property
    def text(self) -> str:
        """Text for a failure message."""
        lines = [f"seed {self.seed}, store {self.base.name}, kept in {self.folder / 'damaged'}", *self.done]
        return "\n  ".join(lines + [f"=> {problem}" for problem in self.problems])


def _short(mine: Any, theirs: Any) -> str:
    if isinstance(mine, dict) and isinstance(theirs, dict):
        keys = sorted(key for key in {**mine, **theirs} if mine.get(key) != theirs.get(key))
        text = "; ".join(f"{key}: rmqtool {mine.get(key)!r}, engine {theirs.get(key)!r}" for key in keys[:3])
        return f"{len(keys)} differ: {text}"
    return f"rmqtool {mine!r}, engine {theirs!r}"


def run_case(seed: int, verb: str, bases: list[TimerBase], folder: Path, engine: Engine, *, deliver: bool) -> TimerCase:
    """Damage, let both recover, and compare; then let the engine continue from our result, and deliver."""
    rng = Random(seed)
    base = rng.choice(bases)
    folder.mkdir(parents=True)
    damaged = copied(base.path, folder / "damaged")
    case = TimerCase(seed, base, timer_damage.damage(rng, damaged, verb), folder)
    try:
        _compare(case, engine, deliver=deliver)
    except Exception as err:  # any failure must name the seed and the store
        case.problems.append(f"{type(err).__name__}: {err}")
    for path in folder.iterdir():
        if path.name != "damaged" or not case.problems:
            shutil.rmtree(path, ignore_errors=True)
    if not case.problems:
        folder.rmdir()
    return case


def _compare(case: TimerCase, engine: Engine, *, deliver: bool) -> None:
    damaged, config = case.folder / "damaged", case.base.config
    theirs = engine.timers(copied(damaged, case.folder / "judged"), config, start=False)
    exact, mine = copied(damaged, case.folder / "exact"), copied(damaged, case.folder / "mine")
    warned = plan(StoreLayout(str(exact), case.base.conf), exactly=True).warnings
    planned = plan(StoreLayout(str(mine), case.base.conf))
    report = recover(StoreLayout(str(mine), case.base.conf))
    case.same("plan against deed", _without_clock(planned.actions), _without_clock(report.actions))
    case.same("loadOk", report.loadOk, theirs["loadOk"])
    if not theirs["loadOk"]:
        case.noted["log not loaded"] += 1
        return
    refused = any("a broker does not start" in warning for warning in warned)
    if not theirs.get("timerOk"):  # or it threw at a foreign file
        metrics = any("timermetrics" in step for step in case.done)  # which check names
        case.same("a timer that a broker does not start on is named", refused or metrics, True)
        _compare_mended(case, engine, mine, report.warnings)
        return
    case.same("start refused", refused, False)
    state = theirs["timer"]
    _compare_model(case, exact, state)
    recover(StoreLayout(str(exact), case.base.conf), exactly=True)
    again = engine.timers(copied(exact, case.folder / "exact-again"), config, start=False)
    _compare_exact(case, engine, again["timer"], state)
    if any("Nothing of the timer is changed here" in warning for warning in report.warnings):
        touched = [action for action in report.actions if "timer" in action and "consumequeue" not in action]
        case.same("what is done to a timer that is left alone", touched, [])
        case.noted["left to rebuild timer"] += 1
        return
    left = engine.timers(copied(mine, case.folder / "again"), config, start=False)["timer"]
    if _is_made_again(report.actions):
        _compare_made_again(case, mine, left, state)
    else:
        _compare_left(case, mine, left, state)
    case.same("actions of a second recovery", plan(StoreLayout(str(mine), case.base.conf)).actions, [])
    if deliver and not case.problems and state["readTime"] <= case.base.due + 1_000:
        _compare_delivered(case, engine, mine, left, state)


def _compare_mended(case: TimerCase, engine: Engine, mine: Path, warnings: list[str]) -> None:
    """Check that a broker that would not start does so after a recovery that does not predict otherwise."""
    metrics = any("timermetrics" in step for step in case.done)
    if metrics or any("a broker does not start" in warning for warning in warnings):
        case.noted["broker does not start"] += 1
        return
    again = engine.timers(copied(mine, case.folder / "again"), case.base.config, start=False)
    case.same("a start on the timer that was mended", again.get("timerOk", False), True)
    case.same("actions of a second recovery", plan(StoreLayout(str(mine), case.base.conf)).actions, [])
    case.noted["mended, where a broker does not start"] += 1


def _compare_model(case: TimerCase, store: Path, state: dict[str, Any]) -> None:
    """Compare our prediction of a start's wheel, log and queue, number by number."""
    layout = StoreLayout(str(store), case.base.conf)
    with planning(layout) as change:
        recovery = run_recovery(StoreInputs.of(layout, release=V5_3, exactly=True), change.staging)
        files = TimerFiles(layout)
        start = TimerAtStart(recovery, files, change, lambda _text, _path: None)
        case.same("end of the timer log", files.end, state["end"])
        case.same("next queue offset", start.queue_offset(), state["queueOffset"])
        case.same("slots", dict(_coming(read_timer(files, exactly=True).slots, state["readTime"])), _slots(state))


def _compare_exact(case: TimerCase, engine: Engine, again: dict[str, Any], state: dict[str, Any]) -> None:
    """Check that a start after an exact recovery repeats a broker's first one, or its second if these differ.

    The first one leaves a checkpoint no longer beyond the end of the log, so the second may begin reading a file
    earlier, and find more.
    """
    result, wanted = _without_dangling(again), _without_dangling(state)
    if result != wanted:
        second = engine.timers(copied(case.folder / "judged", case.folder / "second"), case.base.config, start=False)
        wanted = _without_dangling(second["timer"])
        case.noted["a broker's second start finds more than its first"] += 1
    case.same("timer after an exact recovery", result, wanted)


def _coming(slots: Any, read_time: int) -> Iterator[tuple[int, tuple[int, int, int, int]]]:
    for number in (slots["time"] > 0).nonzero()[0].tolist():
        time_of, first, last, count, _magic = slots[number].tolist()
        if time_of * 1000 >= read_time:
            yield number, (time_of, first, last, count)


def _slots(state: dict[str, Any]) -> Slots:
    return {row["number"]: (row["time"], row["first"], row["last"], row["count"]) for row in state["slots"]}


def _chains(state: dict[str, Any]) -> Chains:
    """Reachable units of each slot, by its time, without those beyond the end."""
    return {
        row["time"]: [tuple(unit) for unit in row["units"] if unit is not None]
        for row in state["slots"]
        if row["time"] % timer.SLOTS == row["number"] and 0 <= row["last"] < state["end"]
    }


def _without_clock(actions: list[str]) -> list[str]:
    """Without names of index files, which depend on the clock."""
    return [re.sub(r"create index/\d+", "create index/*", action) for action in actions]


def _without_dangling(state: dict[str, Any]) -> dict[str, Any]:
    # a read time of a week ago moves on with the clock
    return {"chains": _chains(state), "slots": _slots(state), **{name: state[name] for name in ("end", "queueOffset")}}


def _dangling(state: dict[str, Any]) -> list[int]:
    return [row["time"] for row in state["slots"] if row["last"] >= state["end"]]


def _compare_left(case: TimerCase, mine: Path, left: dict[str, Any], state: dict[str, Any]) -> None:
    """Check a start on our result: the same, except for units beyond the log, and links beyond the timer log."""
    end = CommitLog(StoreLayout(str(mine), case.base.conf)).end()[0]
    theirs, ours = _chains(state), _chains(left)
    case.same("links that lead behind the end", _dangling(left), [])
    if left["end"] == state["end"]:
        case.same("next queue offset on ours", left["queueOffset"], state["queueOffset"])
        ours_of = {time_of: ours.get(time_of) for time_of in theirs}
        case.same("chains on ours", ours_of, theirs)
        more = set(ours) - set(theirs)  # found again from the first unit on, though a broker did not look
        case.same("chains that only ours has", more <= set(_dangling(state)), True)
    else:
        beyond = [unit for chain in theirs.values() for unit in chain if unit[0] + unit[1] > end]
        case.same(
            "cut shorter than a broker for units behind the log", bool(beyond) and left["end"] < state["end"], True
        )
        case.noted["units behind the log"] += 1
        for time_of, chain in ours.items():
            kept = [unit for unit in theirs.get(time_of, []) if unit in chain]
            case.same(f"chain of {time_of} on ours", chain, kept)
    case.noted["links behind the end"] += bool(_dangling(state))


def _is_made_again(actions: list[str]) -> bool:
    """Whether recovery rebuilt the timer or its checkpoint, or left that to the broker's start."""
    return any(action in ("put config/timercheck", "remove timerwheel", "remove config/timercheck") or
               (action.startswith(("put timerlog/", "remove timerlog/")) and "put timerwheel" in actions)
               for action in actions)  # fmt: skip


def _compare_made_again(case: TimerCase, mine: Path, left: dict[str, Any], state: dict[str, Any]) -> None:
    """Check that messages waiting in a broker's wheel on the damaged store also wait in ours, in wheel or queue."""
    log_end = CommitLog(StoreLayout(str(mine), case.base.conf)).end()[0]
    case.same("links that lead behind the end", _dangling(left), [])
    queue = open_queue(StoreLayout(str(mine), case.base.conf), timer.TOPIC, timer.QUEUE_ID)
    assert queue is not None
    ahead = {(entry.physical_offset, entry.size) for entry in queue.entries(left["queueOffset"])}
    ours = {unit[:2] for chain in _chains(left).values() for unit in chain} | ahead
    theirs = {
        unit[:2]
        for time_of, chain in _chains(state).items()
        for unit in chain
        if time_of * 1000 >= state["readTime"] and unit[0] + unit[1] <= log_end and _leads_to_message(mine, case, unit)
    }
    case.same("waiting in a broker's wheel and not on ours", sorted(theirs - ours), [])
    case.noted["made again"] += 1


def _leads_to_message(store: Path, case: TimerCase, unit: tuple[int, int, int]) -> bool:
    located = CommitLog(StoreLayout(str(store), case.base.conf)).read(unit[0])
    return located is not None and (located.record.topic, located.record.total_size) == (timer.TOPIC.encode(), unit[1])


def _compare_delivered(
    case: TimerCase, engine: Engine, mine: Path, left: dict[str, Any], state: dict[str, Any]
) -> None:
    """Start both and deliver everything; theirs only if no chain is circular."""
    before = _delivered(mine, case.base.conf)
    due = case.base.due + 2_000
    options = {"deliver_until": due, "startTimeoutMillis": _PATIENCE}
    looping = any(len(row["units"]) >= _LONGEST for row in (*state["slots"], *left["slots"]))
    if looping:
        case.noted["chains that go round"] += 1
        return
    seen = engine.timers(mine, case.base.config, **options)
    if not seen.get("quiet") and _stands_still(mine, case.base.conf):
        judged = copied(case.folder / "damaged", case.folder / "delivering")
        theirs = engine.timers(judged, case.base.config, **options)
        case.same("a broker stands still at a message, as check says", theirs.get("quiet"), False)
        case.noted["a broker stands still at a message, and check says so"] += 1
        return
    if not case.same("all delivered from ours", seen.get("quiet"), True):
        return
    ours = _delivered(mine, case.base.conf) - before
    keys = _keys(mine, case.base.conf)
    units = [unit for chain in _chains(left).values() for unit in chain if not unit[2] & timer.MAGIC_DELETE]
    chained = {keys[unit[:2]] for unit in units if unit[:2] in keys}
    recalled = {key for key in chained if f"mark {key}" in keys.values()}
    case.same("waiting and not delivered", sorted(chained - recalled - set(ours)), [])
    if _dangling(state) or left["end"] != state["end"]:
        return
    judged = copied(case.folder / "damaged", case.folder / "delivering")
    seen = engine.timers(judged, case.base.config, **options)
    if not seen.get("quiet"):
        case.noted["a broker that stands still"] += 1
        return
    case.same("delivered", ours, _delivered(judged, case.base.conf) - before)
    case.noted["delivered by both"] += 1


def _stands_still(store: Path, conf: BrokerConf) -> bool:
    """Whether check finds a message that a broker retries forever."""
    return any(finding.code == "timer-properties" for finding in check_store(StoreLayout(str(store), conf)))


def _records(store: Path, conf: BrokerConf) -> Iterator[Any]:
    for item in CommitLog(StoreLayout(str(store), conf)).walk():
        if isinstance(item, LocatedRecord):
            yield item


def _delivered(store: Path, conf: BrokerConf) -> Counter[str]:
    """Number of copies of each message in its own topic."""
    walked = (item.record for item in _records(store, conf) if item.record.topic == b"Real")
    return Counter(parse(record.properties).get("UNIQ_KEY", "") for record in walked)


def _keys(store: Path, conf: BrokerConf) -> dict[tuple[int, ...], str]:
    """Unique key of each timer message by physical offset and size; for a mark, that of the recalled message."""
    keys: dict[tuple[int, ...], str] = {}
    for item in _records(store, conf):
        if item.record.topic == timer.TOPIC.encode():
            properties = parse(item.record.properties)
            mark = properties.get(timer.DELETE_KEY)
            keys[item.physical_offset] = (
                f"mark {mark.removeprefix('Real+')}" if mark else properties.get("UNIQ_KEY", "")
            )
    return keys


def run_cases(count: int, seed: int, folder: Path, engine: Engine, *, every: int) -> list[TimerCase]:
    """Run cases, with each kind of damage equally often; some are delivered, too."""
    bases = make_bases(folder / "bases", engine)
    verbs = list(timer_damage.VERBS)
    return [
        run_case(
            seed + n,
            verbs[n % len(verbs)],
            bases,
            folder / str(seed + n),
            engine,
            deliver=bool(every) and n % every == 0,
        )
        for n in range(count)
    ]


def main() -> int:
    """Run cases and print the results."""
    options = options_of("timers", __doc__, SEED)
    options.add_argument("--every", type=int, default=4, help="so manieth case is delivered too; 0 for none")
    chosen = options.parse_args()

    def run(folder: Path, engine: Engine) -> list[TimerCase]:
        return run_cases(chosen.count, chosen.seed, folder, engine, every=chosen.every)

    return report_cases(chosen, "timers", run, "bases")


if __name__ == "__main__":
    sys.exit(main())
