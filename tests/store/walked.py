"""Following advice leads to a clean store: ``python -m tests.store.walked --cases 1000`` damages stores at random.

:func:`walk` follows the advice of ``check`` in order, at most four commands, until ``check`` is clean or names what no
command repairs. :func:`walk_from` begins with any command: if it refuses, the command that it advises is run, which
must not refuse; then it continues with ``check``.
"""

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from random import Random

from rmqtool.store.check.advice.advice import Situation
from rmqtool.store.check.advice.steps import Step
from rmqtool.store.check.common.findings import Finding
from rmqtool.store.check.reading.reading import Interpreter
from rmqtool.store.check.run import is_problem
from rmqtool.store.layout.broker_conf import BrokerConf
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import CommitLog, LocatedRecord
from tests import damage
from tests.cli.running import Result, rmqtool
from tests.store.advised import ASKING, commands_of, conf_file
from tests.store.findings import check_store
from tests.whole import VERBS, Base, damage_store, make_bases, move_directories, words

MOST = 4  # commands
ALL_VERBS = damage.VERBS | VERBS
_PARTS = {"consumequeue", "index", "checkpoint", "config", "files", "compaction", "timer", "consumequeue_ext"}
_VALUED = {"--broker-conf", "--engine", "--backup"}
Command = list[str]


class Walk:
    """A sequence of commands on a store.

    Attributes:
        done: descriptions of the commands run.
    """

    def __init__(self, store: Path, room: Path, conf: BrokerConf | None) -> None:
        self.store, self._room, self._conf = store, room, conf
        self._options = ["--broker-conf", str(conf_file(conf, room))] if conf else []
        self.done: list[str] = []

    def run(self, command: Command) -> Result:
        """Run a command, and continue with a store that it created, if any."""
        new = self._room / f"new-{len(self.done)}"
        places = {"STORE": self.store, "NEWSTORE": new, "FILE": self._room / f"out-{len(self.done)}"}
        asked = [str(places.get(word, word)) for word in command if word not in ("--dry-run", "--yes")]
        options = [] if "--broker-conf" in asked else self._options
        answers = ["--yes", *(["--accept-loss"] if asked[0] == "recover" else [])] if asked[0] in ASKING else []
        result = rmqtool(*asked, *options, *answers)
        self.done.append(f"{' '.join(command)}: {result.code} {result.err}")
        if result.code <= 1 and new.is_dir():
            self.store = new
        return result

    def check(self) -> tuple[list[Finding], list[Command]]:
        """(problems, advised commands)."""
        reader, situation = Interpreter(), Situation()
        findings = list(check_store(StoreLayout(str(self.store), self._conf), situation=situation))
        for finding in findings:
            reader.take(finding)
        steps = reader.reading(situation).steps
        if steps and steps[0].does.startswith("move the directory") and move_directories(self.store):
            self.done.append(steps[0].does)
            return self.check()
        ways = commands_of(steps)
        return [finding for finding in findings if is_problem(finding)], [list(way[1:]) for way in ways]

    def arrive(self) -> list[str]:
        """Follow check's advice; returns the history and the remaining problems if it fails."""
        for number in range(MOST + 1):
            problems, advised = self.check()
            if not problems or not advised:  # what is left is named, and no command mends it
                return []
            if number == MOST or self.run(advised[0]).code > 1:
                break
        return [*self.done, *(f"left: {words(problem)}" for problem in problems)]


def walk(store: Path, room: Path, conf: BrokerConf | None) -> list[str]:
    """Follow check's advice; returns the history and the remaining problems if it fails, else an empty list."""
    return Walk(store, room, conf).arrive()


def walk_from(start: Command, store: Path, room: Path, conf: BrokerConf | None) -> list[str]:
    """As :func:`walk`, beginning with an arbitrary command."""
    going = Walk(store, room, conf)
    result = going.run(start)
    if result.code > 1 or (start[0] == "recover" and result.code == 1):
        for advised in _advised_by(start, result, going):
            if going.run(advised).code > 1:
                return [*going.done, "that was advised, and refused"]
    return going.arrive()


def walk_back(store: Path, room: Path, conf: BrokerConf | None) -> list[str]:
    """As :func:`walk`, after a recovery and its undo, which must restore the store."""
    going, before = Walk(store, room, conf), _contents(store)
    if going.run(["recover", "STORE"]).code == 0:
        undone = going.run(["undo", "STORE"])
        if _contents(store) != before:
            return [*going.done, f"the store is not as it was: {undone.out}"]
    return going.arrive()


def _contents(store: Path) -> dict[str, bytes]:
    files = (path for path in store.rglob("*") if path.is_file() and path.name != "lock")
    return {str(path.relative_to(store)): path.read_bytes() for path in files}


def _advised_by(start: Command, result: Result, going: Walk) -> list[Command]:
    """The commands in the message of a refusal."""
    if start[0] == "recover" and result.code == 1:
        steps = json.loads(going.run([*start, "-o", "json"]).out)["nextSteps"]
        return [command for step in steps for command in commands_in(step)]
    return list(commands_in(result.err))


def commands_in(text: str) -> Iterator[Command]:
    """Command lines in a text; each ends at the first word that cannot belong to it."""
    spoken = text.split()
    for number, word in enumerate(spoken):
        if word.lstrip("(`") == "rmqtool":
            command = list(_command(spoken[number + 1 :]))
            if command and command[0] not in ("check", "manual", "commitlog", "config", "info"):
                yield command


def _command(spoken: list[str]) -> Iterator[str]:
    before = ""
    for number, word in enumerate(spoken):
        bare = word.rstrip(":;,.)`")
        is_argument = bare.startswith(("/", "--")) or bare in _PARTS | {"STORE", "NEWSTORE"} or bare.isdecimal()
        if number and not is_argument and before not in _VALUED:
            return
        yield bare
        if bare != word:
            return
        before = bare


def starts(rng: Random, store: Path, conf: BrokerConf | None, problems: list[Finding]) -> Iterator[Command]:
    """Commands that a user may begin with, including those of ``explain`` for the findings."""
    yield ["recover", "STORE"]
    yield ["recover", "STORE", "--exactly"]
    yield ["rebuild", "STORE", "consumequeue", "index", "checkpoint"]
    yield ["rebuild", "STORE", "files"]
    yield ["dispatch", "STORE"]
    yield ["undo", "STORE"]
    yield ["salvage", "STORE", "NEWSTORE"]
    offsets = [
        item.physical_offset
        for item in CommitLog(StoreLayout(str(store), conf)).walk()
        if isinstance(item, LocatedRecord)
    ]
    if offsets:
        yield ["truncate", "STORE", str(rng.choice(offsets))]
    for code in sorted({problem.code for problem in problems}):
        (explained,) = [json.loads(rmqtool("explain", code, "-o", "json").out)]
        for way in commands_of(Step(**{**step, "command": tuple(step["command"])}) for step in explained["steps"]):
            yield list(way[1:])


def run_case(rng: Random, base: Base, room: Path, verbs: dict[str, damage.Verb], *, every_start: bool) -> list[str]:
    """Damage a store, and walk from commands a user may begin with; returns descriptions and failures.

    Args:
        every_start: begin with all commands, otherwise with check and two others.
    """
    damaged = room / "damaged"
    shutil.copytree(base.path, damaged)
    done = [base.name, *damage_store(rng, damaged, verbs)]
    problems, _ = Walk(damaged, room, base.conf).check()
    ways: list[Command] = [*starts(rng, damaged, base.conf, problems), ["back"]]
    ways = [[], *(ways if every_start else rng.sample(ways, 2))]
    for number, start in enumerate(ways):
        (place := room / str(number)).mkdir()
        store = place / "store"
        shutil.copytree(damaged, store)
        if start == ["back"]:
            failed = walk_back(store, place, base.conf)
        else:
            failed = walk_from(start, store, place, base.conf) if start else walk(store, place, base.conf)
        if failed:
            return [*done, *failed]
        shutil.rmtree(place)
    return []


def main() -> int:
    """Run cases and print the results."""
    options = argparse.ArgumentParser(prog="python -m tests.store.walked", description=__doc__)
    options.add_argument("--cases", type=int, default=1000)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--first", type=int, default=0, help="number of the first case")
    options.add_argument("--every-start", action="store_true", help="begin with each command, and not with some")
    chosen = options.parse_args()
    failed = 0
    with tempfile.TemporaryDirectory(prefix="rmqtool-walk-") as name:
        bases = make_bases(Path(name) / "bases")
        for number in range(chosen.first, chosen.first + chosen.cases):
            rng, room = Random(f"{chosen.seed} {number}"), Path(name) / "case"
            room.mkdir()
            verbs = ALL_VERBS if number % 2 else VERBS
            if told := run_case(rng, rng.choice(bases), room, verbs, every_start=chosen.every_start):
                failed += 1
                print("\n  ".join([f"case {number}: {told[0]}", *told[1:]]), flush=True)
            shutil.rmtree(room)
    print(f"{chosen.cases - failed} of {chosen.cases} arrive")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
