"""Accounts of 4.9 on a served store: killed anywhere, run again, undone; and brokers without them."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from rmqtool.admin.changes.access import Rules
from rmqtool.admin.changes.change import Place, ValueChange
from tests.admin.test_changes import killed_at
from tests.cli.running import ROOT, rmqtool
from tests.interop.serving import Serving

ACCOUNTS = """
globalWhiteRemoteAddresses: [10.9.8.7]
accounts:
- {accessKey: the-admin, secretKey: admin-secret, admin: true}
- accessKey: the-reader
  secretKey: reader-secret
  admin: false
  topicPerms: [Orders=SUB]
  groupPerms: [readers=SUB]
"""
CHANGES = {
    "a new account": ("set", "billing-app", "--secret-file", "SECRET", "--topic-perm", "Orders=PUB"),
    "one more permission": ("set", "the-reader", "--topic-perm", "More=PUB|SUB"),
    "no permission of a kind": ("set", "the-reader", "--topic-perm", "Orders="),
    "no account": ("delete", "the-reader"),
    "addresses": ("set-addresses", "10.0.0.*", "10.9.8.7"),
}


class Lab:
    """A served store with accounts."""

    def __init__(self, serving: Serving, accounts: Path, secret: Path) -> None:
        self.target, self._accounts, self._secret = f"rocketmq://{serving.namesrv}", accounts, secret

    def words(self, name: str) -> tuple[str, ...]:
        """The command line of a change."""
        command, *more = (str(self._secret) if word == "SECRET" else word for word in CHANGES[name])
        return "plain-acl", command, self.target, *more

    def accounts(self) -> Any:
        """The file but for its version, with its accounts in the order of their keys."""
        content = yaml.safe_load(self._accounts.read_text())
        content.pop("dataVersion", None)
        content["accounts"].sort(key=lambda account: account["accessKey"])
        return content


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    folder = tmp_path_factory.mktemp("accounts")
    shutil.copytree(ROOT / "examples" / "store", folder / "store")
    accounts, secret = folder / "plain_acl.yml", folder / "secret"
    accounts.write_text(ACCOUNTS)
    secret.write_text("billing-secret\n")
    with Serving(folder / "store", "--acl-config", str(accounts)) as serving:
        yield Lab(serving, accounts, secret)


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("RMQTOOL_ACCESS_KEY", "the-admin")
    monkeypatch.setenv("RMQTOOL_SECRET_KEY", "admin-secret")
    monkeypatch.setattr("rmqtool.admin.changes.run.PATIENCE", 1.0)
    return tmp_path / "rmqtool"


@pytest.mark.parametrize("name", CHANGES)
def test_killed_anywhere_run_again_and_undone(
    name: str, lab: Lab, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, words, step = lab.accounts(), lab.words(name), 1
    while killed_at(step, monkeypatch, *words):
        rmqtool(*words, "--yes")  # refused where the account is gone, which undo brings back
        while rmqtool("undo", lab.target, "--yes").code == 0:
            pass
        assert lab.accounts() == before, step
        shutil.rmtree(state, ignore_errors=True)
        step += 1
    assert step > 4
    changed = lab.accounts()
    assert changed != before
    done = rmqtool("undo", lab.target, "--yes")
    assert done.code == 0
    assert lab.accounts() == before
    is_back = any(account not in changed["accounts"] for account in before["accounts"])
    assert is_back == ("at the end of the broker's file" in done.err)


@pytest.mark.parametrize(("now", "is_said"), [({}, False), ({"one", "three"}, True), ({"one", "two", "three"}, False)])
def test_a_rule_that_comes_back_is_the_last(now: set[str], is_said: bool) -> None:
    rule = {"actions": ["Pub"], "sourceIps": [], "decision": "Allow"}
    before, after = ({f"Custom Topic:{name}": rule for name in names} for names in (now, ("one", "two", "three")))
    place = Place(kind="acl", cluster="lab", server="lab-a", name=("User:reader",))
    said = Rules.tell_order(ValueChange(place=place, before=before, after=after))
    assert is_said == (said is not None and "at the end of the subject's list" in said)


def test_secrets_are_nowhere_but_in_the_journal(lab: Lab, state: Path) -> None:
    done = rmqtool(*lab.words("a new account"), "--yes", "-o", "json")
    assert done.code == 0, done.err
    assert "billing-secret" not in done.out + done.err
    (journal,) = state.iterdir()
    assert journal.stat().st_mode & 0o077 == 0
    listed = rmqtool("plain-acl", "list", lab.target, "-o", "json")
    assert [row["accessKey"] for row in json.loads(listed.out)] == ["billing-app", "the-admin", "the-reader"]
    assert "secret" not in listed.out
    assert rmqtool("undo", lab.target, "--yes").code == 0


def test_a_broker_without_accounts(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "examples" / "store", tmp_path / "store")
    with Serving(tmp_path / "store") as serving:
        target = f"rocketmq://{serving.namesrv}"
        for words in (("list",), ("addresses",), ("files",)):
            done = rmqtool("plain-acl", words[0], target)
            assert (done.code, "no broker has plain access control" in done.err) == (3, True)
        refused = rmqtool("plain-acl", "set", target, "the-reader", "--admin", "--yes")
        assert (refused.code, "no plain access control" in refused.err) == (4, True)
