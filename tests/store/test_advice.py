"""The advice of check, followed literally, helps, and never loses a message that other advice keeps."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from formats import checkpoint
from formats.queues.consume import build
from rmqtool.cli.repair.show_recovery import question
from rmqtool.store.check.advice.advice import Situation
from rmqtool.store.check.codes.all import CODES
from rmqtool.store.check.reading.reading import STOPS_BROKERS, Interpreter
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.recovery.command import plan
from tests import goldens
from tests.amounts import by_turns, every, some
from tests.cli.running import rmqtool
from tests.cli.screens import SITUATIONS
from tests.conftest import Unpacked
from tests.damage import VERBS, damage, log_files, part_of_5
from tests.services.test_popped import without_progress
from tests.store.advised import conf_file, follow, lost_by_advice, readable, way_of
from tests.store.findings import check_store, flip, write
from tests.store.helpers import conf_of, tree

pytestmark = pytest.mark.slow

BASES = ("clean", "crash", "broker", "delay", "lmq")
CUTS = "body-bit-flip-last-file"
FIRST = int(os.environ.get("RMQTOOL_ADVICE_FROM", "0"))
SEEDS = int(os.environ.get("RMQTOOL_ADVICE_SEEDS", some("6", "12")))
SEEDS_OF_5 = int(os.environ.get("RMQTOOL_ADVICE_SEEDS_OF_5", some("3", "6")))


@by_turns(13)
@pytest.mark.parametrize("case", every(3, goldens.cases()))
def test_of_golden_stores(case: str, golden_copy: Unpacked, tmp_path: Path) -> None:
    assert lost_by_advice(golden_copy(case), tmp_path, conf_of(case)) == []


@by_turns(13)
@pytest.mark.parametrize("seed", range(FIRST, FIRST + SEEDS))
def test_of_damaged_stores(seed: int, golden_copy: Unpacked, tmp_path: Path) -> None:
    """More with RMQTOOL_ADVICE_SEEDS."""
    random = Random(seed)
    case = random.choice(BASES)
    store = golden_copy(case)
    verbs = sorted(VERBS)
    done = damage(random, store, verbs[seed % len(verbs)], random.choice((0, 0, 1, 2)))
    assert lost_by_advice(store, tmp_path, conf_of(case)) == [], (case, done)


@by_turns(3)
@pytest.mark.parametrize("case", goldens.cases_of_5())
def test_of_stores_of_5_3(case: str, golden_copy: Unpacked, tmp_path: Path) -> None:
    assert lost_by_advice(golden_copy(case), tmp_path, conf_of(case)) == []


@by_turns(3)
@pytest.mark.parametrize("seed", range(FIRST, FIRST + SEEDS_OF_5))
def test_of_damaged_stores_of_5_3(seed: int, golden_copy: Unpacked, tmp_path: Path) -> None:
    """Damage to timer, compacted topics and batch queues, and sometimes to the rest too."""
    random, cases = Random(seed), goldens.cases_of_5()
    case = cases[seed % len(cases)]
    store = golden_copy(case)
    done = [part_of_5(random, store) for _ in range(random.choice((1, 1, 2)))]
    if random.random() < 0.5:
        done += damage(random, store, random.choice(sorted(VERBS)))
    assert lost_by_advice(store, tmp_path, conf_of(case)) == [], (case, done)


def test_of_messages_that_consumers_hold(golden_copy: Unpacked, tmp_path: Path) -> None:
    """Unacked POP messages come back after any advice, whatever else is damaged."""
    store = without_progress(golden_copy("broker-5.3.3"))
    held = readable(store).popped
    assert held
    flip(store / "commitlog" / f"{0:020d}", 30_000)
    shutil.rmtree(store / "consumequeue" / "Orders")
    assert lost_by_advice(store, tmp_path, conf_of("broker-5.3.3")) == []


@by_turns(13)
def test_a_lone_log_file_that_was_cut_short(golden_copy: Unpacked, tmp_path: Path) -> None:
    """No other file shows its length: check and refusals print the command that restores it."""
    store = golden_copy("broker")
    (log,) = (store / "commitlog").iterdir()
    log.write_bytes(log.read_bytes()[:100_000])
    (store / "abort").touch()
    (result,) = [problem for problem in check_store(StoreLayout(str(store))) if problem.code == "file-size"]
    command = ("rmqtool", "rebuild", "STORE", "files")
    assert [step.command for step in result.steps] == [command]
    typed = f"rmqtool rebuild {store} files"
    reader, situation = Interpreter(), Situation()
    for finding in check_store(StoreLayout(str(store)), situation=situation):
        reader.take(finding)
    reading = reader.reading(situation)
    assert reading.steps[0].command == command
    assert not any("recover" in step.command for step in reading.steps)
    lines = tmp_path / "lines.ndjson"
    lines.write_text('{"topic":"T","body":"x"}\n')
    for arguments in (["recover", store, "--yes"], ["recover", store, "--dry-run"], ["append", store, lines]):
        refused = rmqtool(*arguments)
        assert (refused.code, refused.out) == (4, "")
        assert typed in refused.err
    assert typed in rmqtool("check", store).out
    (tmp_path / "ways").mkdir()
    assert lost_by_advice(store, tmp_path / "ways") == []
    assert rmqtool("rebuild", store, "files", "--yes").code == 0
    assert log.stat().st_size == 1 << 30
    assert rmqtool("recover", store, "--yes").code == 0
    assert "error" not in {finding.severity for finding in check_store(StoreLayout(str(store)))}


@pytest.mark.parametrize(("base", "length"), [(262_144 * 3, 262_144), (1 << 31, 1 << 30), (300_000, None)])
def test_a_lone_file_of_another_length(base: int, length: int | None, golden_copy: Unpacked) -> None:
    """The file's name and the queues determine its length, if it is a common one."""
    store = golden_copy("broker")
    (log,) = (store / "commitlog").iterdir()
    log.rename(log.with_name(f"{base:020d}"))
    with log.with_name(f"{base:020d}").open("r+b") as file:
        file.truncate(100_000)
    path = store / "consumequeue" / "Orders" / "0" / f"{0:020d}"
    write(path, 104 * 20, build([(base + 200_000, 250, 0)]))  # the last one
    (outcome,) = [finding for finding in check_store(StoreLayout(str(store))) if finding.code == "file-size"]
    (step,) = outcome.steps
    assert step.command == (("rmqtool", "rebuild", "STORE", "files") if length else ())
    assert "mappedFileSizeCommitLog" in step.does
    result = rmqtool("rebuild", store, "files", "--yes")
    assert (result.code, log.parent.joinpath(f"{base:020d}").stat().st_size) == (
        (0, length) if length else (1, 100_000)
    )


def test_a_lone_file_whose_name_tells_that_it_was_cut(golden_copy: Unpacked) -> None:
    """Queues do not point beyond its end, but its name is a multiple of another length."""
    store = golden_copy("compaction-5.3.3")
    (log,) = (store / "commitlog").iterdir()
    assert int(log.name) == 65_536
    with log.open("r+b") as file:
        file.truncate(32_767)
    (finding,) = check_store(StoreLayout(str(store)))
    assert (finding.code, finding.steps[0].command) == ("file-size", ("rmqtool", "rebuild", "STORE", "files"))
    assert f"rmqtool rebuild {store} files" in rmqtool("recover", store, "--dry-run").err
    assert rmqtool("rebuild", store, "files", "--yes").code == 0
    assert log.stat().st_size == 32_768
    assert not list(check_store(StoreLayout(str(store))))


@pytest.mark.parametrize(
    ("case", "code", "path"),
    [("broker-5.3.3", "timer-wheel-size", "timerwheel"), ("rocksdb-5.3.3", "rcq-unreadable", "consumequeue/CURRENT")],
)
def test_what_keeps_a_broker_from_starting_is_said_first(
    case: str, code: str, path: str, golden_copy: Unpacked
) -> None:
    store = golden_copy(case)
    (store / path).write_bytes(b"?" * 1000)
    reader, situation = Interpreter(), Situation()
    for finding in check_store(StoreLayout(str(store)), situation=situation):
        reader.take(finding)
    reading = reader.reading(situation)
    assert code in STOPS_BROKERS
    assert not reading.start
    assert reading.broker == f"A broker does not start on this store ({code})."


def test_codes_that_keep_a_broker_from_starting() -> None:
    """Codes that say so; for the others, the store is known to be refused."""
    told = {code.code for code in CODES.values() if code.broker.startswith("The broker does not start")}
    refused = {"file-foreign", "compaction-foreign", "compaction-unpaired", "dledger-refused"}
    at_times = {"config-database"}  # or it starts without the entry
    assert told - refused - at_times == STOPS_BROKERS


def test_salvage_of_a_lone_file_that_was_cut_short(golden_copy: Unpacked, tmp_path: Path) -> None:
    """Its length must not be used for the new files: no broker would load them."""
    store = golden_copy("broker")
    (log,) = (store / "commitlog").iterdir()
    log.write_bytes(log.read_bytes()[:100_000])
    result = rmqtool("salvage", store, tmp_path / "new", "-o", "json")
    assert "is shorter than it was" in result.err
    assert [path.stat().st_size for path in (tmp_path / "new" / "commitlog").iterdir()] == [1 << 30]
    assert "error" not in {finding.severity for finding in check_store(StoreLayout(str(tmp_path / "new")))}


@by_turns(13)
@pytest.mark.parametrize("code", every(2, list(SITUATIONS)))
def test_of_situations_that_lose_messages(code: str, golden_copy: Unpacked, tmp_path: Path) -> None:
    """Situations with recorded screens: damaged logs, all forms of queues, the timer."""
    case, damager = SITUATIONS[code]
    store = golden_copy(case)
    if damager is not None:
        damager(store)
    assert code in {finding.code for finding in check_store(StoreLayout(str(store), conf_of(case)))}
    assert lost_by_advice(store, tmp_path, conf_of(case)) == []


def test_no_code_advises_what_destroys_before_what_keeps() -> None:
    for code in CODES.values():
        assert code.steps, code.code
        # removing it hides a crash; only a database of queues that is made anew wants one
        assert "abort" not in code.fix or "an empty file named abort" in code.fix, code.code
        destroying = [number for number, step in enumerate(code.steps) if step.destroys]
        for number in destroying:
            assert "salvage" in code.steps[number - 1].command
            assert code.steps[number].costs
        for step in code.steps:
            assert step.does
            assert not step.command or step.command[0] == "rmqtool"


@pytest.mark.parametrize(
    ("code", "command"),
    [
        ("index-absent", "index"),
        ("index-chain", "index"),
        ("index-entry", "index"),
        ("cq-missing", "consumequeue"),
        ("cq-tags", "consumequeue"),
        ("checkpoint-missing", "checkpoint"),
        ("checkpoint-ahead", "checkpoint"),
        ("topic-unknown", "config"),
        ("timer-lost", "timer"),
        ("timer-wheel-size", "timer"),
        ("timer-checkpoint-empty", "timer"),
    ],
)
def test_what_concerns_a_part_names_its_rebuild(code: str, command: str) -> None:
    assert CODES[code].steps[-1].command == ("rmqtool", "rebuild", "STORE", command)


def test_a_wrong_body_that_no_start_looks_at_and_no_index(golden_copy: Unpacked, tmp_path: Path) -> None:
    """Recovery cuts nothing, and no advice may lead to a cut."""
    store = golden_copy("clean")
    flip(store / "commitlog" / f"{0:020d}", 24198 + 100)
    for path in (store / "index").iterdir():
        path.unlink()
    findings = {f.code: f for f in check_store(StoreLayout(str(store), conf_of("clean")))}
    assert set(findings) == {"log-crc", "index-absent"}
    assert way_of(findings["index-absent"]) == (("rmqtool", "rebuild", "STORE", "index"),)
    assert way_of(findings["log-crc"]) == (("rmqtool", "salvage", "STORE", "NEWSTORE"),)
    assert findings["log-crc"].consequence.startswith(
        "the next start does not check this file; a start after a crash does"
    )
    done = follow(store, way_of(findings["index-absent"]), tmp_path, conf_of("clean"))
    assert (done.codes, {code for code, _file in done.left}) == ([0], {"log-crc"})
    assert len(done.kept.log) == len(done.kept.queues) == len(done.kept.index) == 499


def test_which_start_cuts_is_told(golden_copy: Unpacked) -> None:
    """The next start, the one after it, or one after a crash."""
    store = golden_copy("clean")
    files = log_files(store)
    told = []
    for number in (0, 2):
        copy = golden_copy("clean")
        if number:
            (copy / "abort").touch()
            late = 2_000_000_000_000  # so that the check begins in the last file
            point = checkpoint.parse((copy / "checkpoint").read_bytes())
            point = point._replace(physic_msg_timestamp=late, logics_msg_timestamp=late)
            (copy / "checkpoint").write_bytes(checkpoint.build(point))
        flip(copy / "commitlog" / files[number].name, 20000)
        (finding,) = [f for f in check_store(StoreLayout(str(copy), conf_of("clean"))) if f.code.startswith("log-")]
        told.append(finding.consequence)
        report = plan(StoreLayout(str(copy), conf_of("clean")))
        assert report.startFile is not None
        assert report.startFile > finding.file
        assert not report.lost
    assert "a start after a crash does if the checkpoint is missing or older" in told[0]
    assert "the start after that does if the broker stops cleanly before, and cuts off" in told[1]


def no_commitlog(store: Path) -> None:
    (store / "commitlog").rename(store / "elsewhere")


def empty_commitlog(store: Path) -> None:
    no_commitlog(store)
    (store / "commitlog").mkdir()


def file_without_messages(store: Path) -> None:
    """The state left by a broker that started on an empty mount point."""
    size = log_files(store)[0].stat().st_size
    empty_commitlog(store)
    (store / "commitlog" / f"{0:020d}").write_bytes(bytes(size))


def only_the_checkpoint(store: Path) -> None:
    empty_commitlog(store)
    for name in ("consumequeue", "index"):
        (store / name).rename(store.parent / name)


@pytest.mark.parametrize("damager", [no_commitlog, empty_commitlog, file_without_messages, only_the_checkpoint])
@pytest.mark.parametrize("aborted", [False, True])
def test_a_log_that_is_not_mounted(
    damager: Callable[[Path], None], aborted: bool, golden_copy: Unpacked, tmp_path: Path
) -> None:
    """It is reported first, nothing that writes is advised, and only ``--exactly`` does what a broker does then."""
    store = golden_copy("clean")
    damager(store)
    if aborted:
        (store / "abort").touch()
    findings = list(check_store(StoreLayout(str(store), conf_of("clean"))))
    assert findings[0].code == "log-absent"
    assert "is its disk mounted" in findings[0].fix
    assert not [f for f in findings if way_of(f)]
    before = tree(store)
    (tmp_path / "message").write_text('{"topic":"T","body":"x"}')
    conf = ("--broker-conf", conf_file(conf_of("clean"), tmp_path))
    if damager is not file_without_messages:
        for consent in ("--dry-run", "--yes"):
            refused = rmqtool("recover", store, consent, *conf)
            assert (refused.code, refused.out) == (4, "")
            assert "is its disk mounted? If storePathCommitLog names another directory" in refused.err
    if damager is only_the_checkpoint and not aborted:
        return  # a broker removes nothing then
    exactly = ("recover", store, *conf, *(("--exactly",) if damager is not file_without_messages else ()))
    looked = rmqtool(*exactly, "--dry-run")
    if damager is not only_the_checkpoint:
        assert looked.code == 1
        assert "LOSS: there are no messages in" in looked.out
        refused = rmqtool(*exactly, "--yes")
        assert refused.code == 4
        assert "--accept-loss" in refused.err
    assert rmqtool("append", store, tmp_path / "message", *conf).code >= 3
    for name in ("consumequeue", "index", "checkpoint"):
        assert rmqtool("rebuild", store, name, "--yes", *conf).code != 0 or damager is only_the_checkpoint
    if damager is not only_the_checkpoint:
        assert tree(store) == before
        assert rmqtool(*exactly, "--yes", "--accept-loss").code == 0


def test_recovery_that_cuts_intact_messages_needs_consent(golden_copy: Unpacked, tmp_path: Path) -> None:
    store = golden_copy("size-field-negative")
    before = tree(store)
    plan_of = json.loads(rmqtool("recover", store, "--dry-run", "-o", "json").out)
    lost = sum(loss["messages"] for loss in plan_of["lost"])
    assert (lost > 0, plan_of["salvageKeeps"]) == (True, lost)
    refused = rmqtool("recover", store, "--yes")
    assert refused.code == 4
    losses = (
        f"{lost} intact messages after the end of the log are cut off; rmqtool salvage {store} NEWSTORE keeps {lost}"
    )
    assert losses in refused.err
    assert tree(store) == before
    assert not Path(f"{store}.rmqtool").exists()
    salvaged = rmqtool("salvage", store, tmp_path / "new", "-o", "json")
    in_store = len(readable(store).log)
    assert json.loads(salvaged.out)["messages"] == in_store
    result = rmqtool("recover", store, "--yes", "--accept-loss", "-o", "json")
    assert (result.code, json.loads(result.out)["destroys"] != []) == (0, True)
    assert len(readable(store).log) == in_store - lost


@pytest.mark.parametrize("case", ["torn-last-record", "torn-header", "crash", "clean-exit-torn-last-record"])
def test_an_ordinary_torn_tail_is_cut_without_more_words(case: str, golden_copy: Unpacked) -> None:
    result = rmqtool("recover", golden_copy(case), "--yes", "-o", "json")
    assert (result.code, json.loads(result.out)["destroys"]) == (0, [])


def test_what_recovery_did_not_look_at_is_said(golden_copy: Unpacked) -> None:
    store = golden_copy("clean")
    flip(store / "commitlog" / f"{0:020d}", 24198 + 100)
    for path in (store / "index").iterdir():
        path.unlink()
    result = rmqtool("recover", store, "--yes", "-o", "table")
    assert result.code == 0
    on = "the log was checked from commitlog/00000000000000049152 on; 1 file before it was not checked for damage"
    assert on in result.out
    assert "mended: 1 index file that did not fit the log, or had not all keys" in result.out
    assert "in order" not in result.out


def test_a_level_that_never_delivered_has_lost_no_offset(golden_copy: Unpacked, tmp_path: Path) -> None:
    """A message due while no broker ran is delivered by the next one; a level with deliveries is reported as usual."""
    store = golden_copy("broker")
    (tmp_path / "message").write_text('{"topic":"Orders","queueId":0,"body":"x"}')
    assert rmqtool("append", store, tmp_path / "message").code == 0
    assert not list(check_store(StoreLayout(str(store), conf_of("broker"))))
    path = store / "config" / "delayOffset.json"
    path.write_text(path.read_text().replace(",3:8,", ","))
    (finding,) = check_store(StoreLayout(str(store), conf_of("broker")))
    assert (finding.code, finding.queueId) == ("delay-offset-lost", 2)


def interrupted(store: Path, state: str) -> Path:
    """A journal in this state, from a run with nothing left to do."""
    assert rmqtool("recover", store, "--yes").code == 0
    (manifest,) = Path(f"{store}.rmqtool").glob("*/manifest.json")
    text = manifest.read_text().replace('"state": "done"', f'"state": "{state}"')
    manifest.write_text(text.replace(str(store), "/another") if state == "moved" else text)
    if state == "moved":
        manifest.write_text(manifest.read_text().replace('"moved"', '"committed"'))
    if state == "unreadable":
        manifest.write_bytes(b"{")
    return manifest


@pytest.mark.parametrize(
    ("state", "code", "command"),
    [
        ("committed", "recovery-unfinished", ("rmqtool", "recover", "STORE")),
        ("undoing", "undo-unfinished", ("rmqtool", "undo", "STORE")),
        ("unreadable", "journal-unreadable", ()),
        # it came with the store, whatever its path was then
        ("moved", "recovery-unfinished", ("rmqtool", "recover", "STORE")),
    ],
)
def test_an_unfinished_run_is_a_finding(state: str, code: str, command: tuple[str, ...], golden_copy: Unpacked) -> None:
    store = golden_copy("torn-last-record")
    interrupted(store, state)
    (finding,) = check_store(StoreLayout(str(store), conf_of("torn-last-record")))
    assert (finding.code, finding.severity, finding.steps[0].command) == (code, "warning", command)
    shown = rmqtool("recover", store, "--dry-run")
    assert shown.code == 1
    assert f"{store}.rmqtool" in shown.out
    assert "Traceback" not in shown.err


def test_the_question_names_the_number(golden_copy: Unpacked) -> None:
    asked = [
        question(plan(StoreLayout(str(golden_copy(case)), conf_of(case))))
        for case in ("crash", CUTS, "commitlog-deleted")
    ]
    assert asked[0] == "Do this?"
    kept = "salvage, run before this, keeps them in a new store."
    assert asked[1] == f"{kept} Recover all the same, and cut off 26 intact messages?"
    assert asked[2] == "Do this, though the log is missing, and remove its queues?"
