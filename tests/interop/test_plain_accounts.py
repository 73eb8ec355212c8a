"""Accounts of 4.9 beside ``mqadmin``, on a real broker and on ours: each sees what the other has changed.

``mqadmin`` does not sign in the judge, so the first broker trusts this address. The second one trusts no address: there
our commands sign.
"""

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.amounts import by_turns
from tests.cli.running import Result, rmqtool
from tests.interop import broker as brokers
from tests.interop.broker import SMALL_FILES, Broker
from tests.interop.serving import CLUSTER, NAME, Serving

pytestmark = pytest.mark.interop
VERSION = "4.9.7"  # 4.9.8 has lost the request that lists accounts
ADMIN, SECRET = "the-admin", "admin-secret"
FILE = """
globalWhiteRemoteAddresses: [{white}]
accounts:
- {{accessKey: the-admin, secretKey: admin-secret, admin: true}}
- accessKey: the-reader
  secretKey: reader-secret
  defaultTopicPerm: DENY
  defaultGroupPerm: SUB
  topicPerms: [Orders=SUB, More=PUB|SUB]
  groupPerms: [readers=SUB]
"""
_SETTINGS = {
    **SMALL_FILES, "brokerFastFailureEnable": "false",
    "aclEnable": "true",
}  # fmt: skip


class Guarded:
    """A broker with accounts, and ``mqadmin``."""

    def __init__(self, judge: Broker, namesrv: str, accounts: Path) -> None:
        self._judge, self.target, self.accounts = judge, f"rocketmq://{namesrv}/{CLUSTER}", accounts

    def admin(self, line: str) -> str:
        """The output of ``mqadmin``."""
        said: str = self._judge.ask("admin", arguments=line.split(), seconds=20)["said"]
        return said

    def ours(self, *words: object) -> Result:
        """The result of our command."""
        return rmqtool(*(self.target if word == "TARGET" else word for word in words))

    def rows(self, *words: str) -> list[dict[str, Any]]:
        """The rows of our command."""
        done = self.ours(*words, "-o", "json")
        assert done.code in (0, 1), done.err
        found: list[dict[str, Any]] = json.loads(done.out)
        return found

    def change(self, *words: object) -> None:
        """Our command must do it."""
        done = self.ours(*words, "--yes")
        assert done.code == 0, (done.out, done.err)

    def file(self) -> dict[str, Any]:
        """The accounts in the broker's file, by key, and the addresses; without what is not set."""
        content = yaml.safe_load(self.accounts.read_text())
        table = {
            row["accessKey"]: {name: value for name, value in row.items() if value not in (None, "", [], False)}
            for row in content["accounts"]
        }
        return {"accounts": table, "addresses": content.get("globalWhiteRemoteAddresses") or []}


@contextmanager
def guarded(kind: str, folder: Path, white: str) -> Iterator[Guarded]:
    """A real broker or ours with :data:`FILE`."""
    if reason := brokers.available(VERSION):
        pytest.skip(reason)
    accounts = folder / "home/conf/plain_acl.yml"
    accounts.parent.mkdir(parents=True)
    accounts.write_text(FILE.format(white=white))
    (folder / "store").mkdir()
    settings = {**_SETTINGS, "rocketmqHome": str(folder / "home")}
    with ExitStack() as stack:
        judge = stack.enter_context(Broker(VERSION))
        if kind == "real":
            judge.boot(folder / "store", settings)
            namesrv = judge.ask("addresses")["namesrv"]
        else:
            conf = folder / "broker.conf"
            conf.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
            options = ("--create", "--engine", "4.9", "--broker-conf", str(conf))
            serving = stack.enter_context(Serving(folder / "ours", *options))
            judge.connect(serving.namesrv, serving.broker)
            namesrv = serving.namesrv
        stack.callback(judge.stop)
        yield Guarded(judge, namesrv, accounts)


@pytest.fixture(scope="module", params=["real", "ours"])
def open_here(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    with guarded(request.param, tmp_path_factory.mktemp("open"), "127.0.0.1") as made:
        yield made


@pytest.fixture(scope="module", params=["real", "ours"])
def closed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    with guarded(request.param, tmp_path_factory.mktemp("closed"), "10.9.8.7") as made:
        yield made


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("RMQTOOL_ACCESS_KEY", ADMIN)
    monkeypatch.setenv("RMQTOOL_SECRET_KEY", SECRET)


def secret_file(folder: Path, secret: str) -> Path:
    path = folder / "secret"
    path.write_text(secret + "\n")
    return path


@by_turns(17)
def test_each_sees_the_accounts_of_the_other(open_here: Guarded, tmp_path: Path) -> None:
    before = open_here.file()
    secret = secret_file(tmp_path, "billing-secret")
    words = ("plain-acl", "set", "TARGET", "billing-app", "--secret-file", secret, "--topic-perm", "Orders=PUB|SUB")
    open_here.change(*words, "--default-group-perm", "sub", "--white-address", "10.1.2.3")
    made = {
        "accessKey": "billing-app", "secretKey": "billing-secret", "topicPerms": ["Orders=PUB|SUB"],
        "defaultGroupPerm": "SUB", "whiteRemoteAddress": "10.1.2.3",
    }  # fmt: skip
    assert open_here.file()["accounts"]["billing-app"] == made
    open_here.admin(f"updateAclConfig -c {CLUSTER} -a billing-app -s billing-secret -t More=PUB -m false")
    (row,) = open_here.rows("plain-acl", "list", "TARGET", "billing-app")
    assert row["topicPerms"] == open_here.file()["accounts"]["billing-app"]["topicPerms"]
    assert "More=PUB" in row["topicPerms"]
    assert "billing-secret" not in json.dumps(row)
    open_here.change("plain-acl", "delete", "TARGET", "billing-app")
    assert open_here.file() == before
    open_here.change("undo", "TARGET")
    assert open_here.file()["accounts"]["billing-app"]["topicPerms"] == row["topicPerms"]
    open_here.admin(f"deleteAclConfig -c {CLUSTER} -a billing-app")
    assert open_here.rows("plain-acl", "list", "TARGET", "billing-app") == []
    open_here.admin(f"updateAclConfig -c {CLUSTER} -a their-account -s their-secret -u SUB -m true")
    assert [(row["accessKey"], row["admin"], row["defaultGroupPerm"]) for row in open_here.rows(
        "plain-acl", "list", "TARGET", "their-account"
    )] == [("their-account", True, "SUB")]  # fmt: skip
    open_here.change("plain-acl", "delete", "TARGET", "their-account")
    assert open_here.file() == before


@by_turns(17)
def test_what_was_not_there_is_gone_after_undo(open_here: Guarded) -> None:
    before = open_here.file()
    words = ("plain-acl", "set", "TARGET", "the-reader")
    open_here.change(*words, "--topic-perm", "Orders=", "--topic-perm", "More=", "--group-perm", "readers=")
    account = open_here.file()["accounts"]["the-reader"]
    assert {"topicPerms", "groupPerms"}.isdisjoint(account)
    assert account["defaultGroupPerm"] == "SUB"
    open_here.change("undo", "TARGET")
    assert open_here.file() == before
    open_here.change(*words, "--white-address", "10.0.0.*", "--admin")
    open_here.change("undo", "TARGET")
    assert open_here.file() == before


@by_turns(17)
def test_each_sees_the_addresses_of_the_other(open_here: Guarded) -> None:
    def ours() -> list[str]:
        return sorted(row["address"] for row in open_here.rows("plain-acl", "addresses", "TARGET"))

    before = open_here.file()["addresses"]
    assert ours() == before
    open_here.change("plain-acl", "set-addresses", "TARGET", "127.0.0.1", "10.0.0.*")
    assert sorted(open_here.file()["addresses"]) == ["10.0.0.*", "127.0.0.1"]
    open_here.change("undo", "TARGET")
    assert open_here.file()["addresses"] == before
    open_here.admin(f"updateGlobalWhiteAddr -c {CLUSTER} -g 127.0.0.1,10.4.0.1")
    assert ours() == ["10.4.0.1", "127.0.0.1"]
    open_here.change("plain-acl", "set-addresses", "TARGET", *before)
    (row,) = open_here.rows("plain-acl", "files", "TARGET")
    said = open_here.admin(f"clusterAclConfigVersion -c {CLUSTER}")
    assert (row["file"], row["brokerName"]) == (str(open_here.accounts), NAME)
    assert row["file"] in said
    content = yaml.safe_load(open_here.accounts.read_text())["dataVersion"][0]
    assert (row["counter"], row["timestamp"]) == (content["counter"], content["timestamp"])


@by_turns(17)
def test_the_account_that_signs_is_kept(open_here: Guarded, tmp_path: Path) -> None:
    before = open_here.accounts.read_bytes()
    secret = secret_file(tmp_path, "another-secret")
    for words in (("delete",), ("set", "--no-admin"), ("set", "--secret-file", secret)):
        name, *more = words
        done = open_here.ours("plain-acl", name, "TARGET", ADMIN, *more, "--yes")
        assert (done.code, "signs these requests" in done.err) == (4, True), done.err
    refused = open_here.ours("plain-acl", "set", "TARGET", "nobody-yet", "--admin", "--yes")
    assert (refused.code, "a new one needs a secret" in refused.err) == (2, True)
    assert open_here.accounts.read_bytes() == before


@by_turns(17)
def test_questions_and_changes_are_signed(closed: Guarded, monkeypatch: pytest.MonkeyPatch) -> None:
    before = closed.file()
    closed.change("topic", "create", "TARGET", "Orders")
    closed.change("group", "create", "TARGET", "readers")
    for words in (
        ("cluster", "list"), ("topic", "list"), ("topic", "show", "Orders"), ("group", "list"),
        ("broker-config", "show"), ("plain-acl", "list"), ("plain-acl", "files"), ("plain-acl", "addresses"), ("info",),
        ("client", "producers"), ("group", "lag"), ("offsets",), ("config", "topics.json"),
    ):  # fmt: skip
        at = 1 if words[0] in ("info", "offsets", "config") else 2
        done = closed.ours(*words[:at], "TARGET", *words[at:], "-o", "json")
        assert done.code in (0, 1), (words, done.err)
        assert "NO_PERMISSION" not in done.err, (words, done.err)
        assert "accessKey" not in done.err, (words, done.err)
    closed.change("plain-acl", "set", "TARGET", "the-reader", "--topic-perm", "Extra=SUB")
    assert "Extra=SUB" in closed.file()["accounts"]["the-reader"]["topicPerms"]
    closed.change("undo", "TARGET")
    assert closed.file() == before
    monkeypatch.setenv("RMQTOOL_SECRET_KEY", "wrong-secret")
    done = closed.ours("plain-acl", "set", "TARGET", "the-reader", "--topic-perm", "Extra=SUB", "--yes")
    assert (done.code, "Check signature failed" in done.err, "nothing was changed" in done.err) == (3, True, True)
    assert closed.file() == before
