"""Live commands at a terminal of 80 columns: no line is longer, and what is left out of a table is named."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.admin.test_failures import CHANGES, WORDS, changes, namesrv_of  # noqa: F401 - a fixture
from tests.admin.test_failures_apart import (
    ACCOUNTS,
    CONTROLLED,
    CONTROLLERS,
    LITE,
    NAME_SERVERS,
    NAMED,
    NEWER,
    STATIC,
    USERS,
    guarded,
    lite_broker,  # noqa: F401 - a fixture
    newer,  # noqa: F401 - a fixture
)
from tests.admin.test_plain_access import ACCOUNTS as FILE
from tests.amounts import whole_by_turns
from tests.cli.running import ROOT, rmqtool
from tests.cli.terminal import at_terminal, plain
from tests.client.peers import serving
from tests.interop.serving import Serving

SHOWN = {**WORDS, **NEWER, **NAME_SERVERS}
del SHOWN["dlq export"]  # whole messages, one JSON object a line
BESIDES = {"rebalance plan": {"moves"}}  # nothing was held before
# plans that fail where there is nothing to change, or no client
PLANNED = {
    name: words for name, words in (CHANGES | STATIC | NAMED).items() if not name.startswith(("user", "acl", "pl"))
}
SIGNED = {"RMQTOOL_ACCESS_KEY": "the-admin", "RMQTOOL_SECRET_KEY": "admin-secret"}


def check_screen(name: str, *args: object) -> None:
    """No line is too long, and what a table leaves out is named."""
    code, output = at_terminal(*args)
    assert "Traceback" not in output
    assert code in (0, 1), output
    lines = plain(output).splitlines()
    assert max(map(len, lines)) <= 80, output
    result = rmqtool(*args, "-o", "ndjson")
    row = json.loads(result.out.partition("\n")[0] or "{}")
    left_out = [line for line in lines if line.startswith("not shown: ")]
    header = next((line for line in lines if set(line.split()) <= row.keys() and line.strip()), None)
    allowed = BESIDES.get(name, set())
    if header is not None and len(header.split()) > 2 and not left_out:  # a table, with all that machines get
        columns = set(header.split())
        assert not [key for key, value in row.items() if value not in (None, [], {}) and key not in columns | allowed]


@whole_by_turns(4, 9)
@pytest.mark.parametrize("name", SHOWN)
def test_no_line_is_too_long(name: str, newer: Serving) -> None:  # noqa: F811
    check_screen(name, *name.split(), f"rocketmq://{newer.namesrv}", *SHOWN[name])


@whole_by_turns(4, 9)
@pytest.mark.parametrize("name", PLANNED)
def test_no_line_of_a_plan_is_too_long(
    name: str,
    newer: Serving,  # noqa: F811
    changes: dict[str, tuple[str, ...]],  # noqa: F811
    tmp_path: Path,
) -> None:
    words = (*name.split(), f"rocketmq://{newer.namesrv}", *changes.get(name, PLANNED[name]), "--dry-run")
    code, output = at_terminal(*words, XDG_STATE_HOME=str(tmp_path))
    assert "Traceback" not in output
    assert code in (0, 1, 3, 4), output
    assert max(map(len, plain(output).splitlines())) <= 80, output


@whole_by_turns(4, 9)
def test_no_line_of_undo_is_too_long(newer: Serving, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    target = f"rocketmq://{newer.namesrv}"
    for line in (f"kv set {target} NS key {'value ' * 5}", f"cold-data set {target} lab-consumer 1M"):
        words = line.split(maxsplit=5)
        assert rmqtool(*words, "--yes").code == 0
        for more in (["--dry-run"], ["--yes"]):
            code, output = at_terminal("undo", target, *more)
            assert code == int("--dry-run" in more), output
            lines = plain(output).splitlines()
            assert max(len(line) for line in lines if " " in line.strip()) <= 80, output  # a path cannot be folded


@whole_by_turns(4, 9)
@pytest.mark.parametrize("name", [*USERS, *CONTROLLERS, *CONTROLLED])
def test_no_line_about_users_and_controllers_is_too_long(name: str) -> None:
    words = USERS | CONTROLLERS | CONTROLLED
    with serving(guarded("gone")) as namesrv:
        code, output = at_terminal(
            *name.split(), f"rocketmq://{namesrv}", *words[name], *(("-n",) * (name in CONTROLLED))
        )
    assert "Traceback" not in output
    assert code in (1, 2, 3, 4), output  # a broker does not answer, and the controller has nothing to change
    assert max(map(len, plain(output).splitlines())) <= 80, output


@whole_by_turns(4, 9)
@pytest.mark.parametrize("name", LITE)
def test_no_line_about_lite_topics_is_too_long(name: str, lite_broker: str) -> None:  # noqa: F811
    with serving(namesrv_of(lite_broker, "gone")) as namesrv:
        check_screen(name, *name.split(), f"rocketmq://{namesrv}", *LITE[name])


@pytest.fixture(scope="module")
def accounts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A cluster whose broker has accounts."""
    folder = tmp_path_factory.mktemp("accounts")
    shutil.copytree(ROOT / "examples" / "store", folder / "store")
    (folder / "plain_acl.yml").write_text(FILE)
    with Serving(folder / "store", "--acl-config", str(folder / "plain_acl.yml")) as served:
        yield f"rocketmq://{served.namesrv}"


@whole_by_turns(4, 9)
@pytest.mark.parametrize("name", [*ACCOUNTS, "plain-acl set", "plain-acl delete", "plain-acl set-addresses"])
def test_no_line_about_accounts_is_too_long(name: str, accounts: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable, value in SIGNED.items():
        monkeypatch.setenv(variable, value)
    more = {
        "plain-acl set": ("the-reader", "--topic-perm", "Orders=PUB", "-n"),
        "plain-acl delete": ("the-reader", "-n"),
    }
    words = (ACCOUNTS | more).get(name, ("10.0.0.*", "10.9.8.7", "-n"))
    check_screen(name, *name.split(), accounts, *words)
