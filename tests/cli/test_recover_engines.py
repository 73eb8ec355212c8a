"""recover --engine and --exactly: the rules used, as reported, and the help for them."""

import json

from tests.cli.running import rmqtool
from tests.conftest import Unpacked
from tests.store.helpers import cut_queues
from tests.store.test_recover_engines import layout_of


def test_the_report_says_whose_rules_and_why(golden_copy: Unpacked) -> None:
    store = golden_copy("crash")
    shown = rmqtool("recover", store, "--dry-run")
    assert shown.code == 1
    assert "4.9: it has nothing of 5.x" in shown.out
    (store / "abort").write_bytes(b"4711")
    shown = rmqtool("recover", store, "--dry-run")
    assert "5.3: the abort file holds a process id" in shown.out
    forced = json.loads(rmqtool("recover", store, "--dry-run", "--engine", "4.9", "-o", "json").out)
    assert (forced["engine"], forced["engineReason"]) == ("4.9", "asked for")
    assert "but the rules of 4.9 are used" in forced["warnings"][0]
    done = json.loads(rmqtool("recover", store, "--yes", "-o", "json").out)
    assert (done["engine"], done["applied"]) == ("5.3", True)


def test_exactly_loses_what_5_3_loses(golden_copy: Unpacked) -> None:
    store = golden_copy("clean")
    cut_queues(layout_of(store), 5)
    args = ("recover", store, "--dry-run", "--engine", "5.3", "-o", "json")
    kept, exactly = json.loads(rmqtool(*args).out), json.loads(rmqtool(*args, "--exactly").out)
    assert (kept["messagesRedispatched"], exactly["messagesRedispatched"]) == (5, 4)
    assert kept["warnings"][1].endswith("; this plan keeps it")
    assert exactly["warnings"][1].endswith("; this plan does the same")


def test_another_engine_is_a_usage_error(golden: Unpacked) -> None:
    assert rmqtool("recover", golden("clean"), "--dry-run", "--engine", "5.1").code == 2
