"""Live commands beside real brokers with access control: 1.0 of 4.9, and 2.0 of 5.x.

An administrator's key is enough for all of them; without a key, with a wrong one, or without the right, each ends with
the broker's code and remark, and nothing is changed. Only with ``RMQTOOL_TESTS=all``.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.admin.test_failures import CHANGES, WORDS
from tests.amounts import only_in_all
from tests.cli.running import Result, rmqtool
from tests.interop import broker as brokers
from tests.interop.broker import Broker
from tests.interop.engine import NEWEST
from tests.interop.mqadmin import CONFIG
from tests.interop.serving import CLUSTER
from tests.interop.signing import demand_signatures

pytestmark = [pytest.mark.interop, only_in_all]
RELEASES = ("4.9.8", "5.3.3", NEWEST)
ADMIN, READER = ("the-admin", "admin-secret"), ("the-reader", "reader-secret")
_ACCOUNTS = """
accounts:
- {accessKey: the-admin, secretKey: admin-secret, admin: true}
- {accessKey: the-reader, secretKey: reader-secret, topicPerms: [Orders=SUB], groupPerms: [lab-consumer=SUB]}
"""
# every change that a broker carries out without more preparation
DONE = {
    "topic create": ("New",), "topic update": ("Orders", "--queues", "8"), "topic perm": ("Orders", "R"),
    "topic delete": ("Old",), "group create": ("new",), "group update": ("lab-consumer", "--no-consume"),
    "group delete": ("lab-orderly",), "broker-config set": ("brokerPermission=4",),
}  # fmt: skip
NOT_OF_BROKERS = {"write-perm wipe", "write-perm add", "send-rtt"}  # name servers have no keys


class Lab:
    """A guarded broker, and the key that commands sign with."""

    def __init__(self, judge: Broker, patch: pytest.MonkeyPatch) -> None:
        self.judge, self._patch = judge, patch
        self.target = f"rocketmq://{judge.namesrv}/{CLUSTER}"

    def sign(self, key: tuple[str, str] | None) -> None:
        """Sign with a key, or with none."""
        for name, value in zip(("RMQTOOL_ACCESS_KEY", "RMQTOOL_SECRET_KEY"), key or ("", ""), strict=True):
            self._patch.setenv(name, value) if key else self._patch.delenv(name, raising=False)

    def run(self, name: str, *args: str) -> Result:
        done = rmqtool(*name.split(), self.target, *args, "-o", "json")
        assert "Traceback" not in done.err
        assert "-secret" not in done.out + done.err
        return done


@pytest.fixture(params=RELEASES)
def lab(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    version = request.param
    if reason := brokers.available(version):
        pytest.skip(reason)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    store, home = tmp_path / "store", tmp_path / "home"
    store.mkdir()
    (home / "conf").mkdir(parents=True)
    (home / "conf" / "plain_acl.yml").write_text(_ACCOUNTS)
    access = {"aclEnable": "true", "rocketmqHome": str(home)} if version.startswith("4") else demand_signatures(*ADMIN)
    with Broker(version) as judge:  # in its own JVM: 5.3 shares access rules among all brokers of a process
        judge.boot(store, {**CONFIG, **access})
        lab = Lab(judge, monkeypatch)
        lab.sign(ADMIN)
        for topic in ("Orders", "Old"):
            assert lab.run("topic create", topic, "--queues", "4", "--yes").code == 0
        for group in ("lab-consumer", "lab-orderly"):
            assert lab.run("group create", group, "--yes").code == 0
        if not version.startswith("4"):
            password = tmp_path / "password"
            password.write_text(READER[1])
            assert lab.run("user create", READER[0], "--password-file", str(password), "--yes").code == 0
            for resource in ("Topic:Orders", "Group:lab-consumer"):
                args = (f"User:{READER[0]}", "--resource", resource, "--action", "Sub", "--yes")
                assert lab.run("acl set", *args).code == 0
        yield lab
        judge.stop()


def test_every_command_is_signed(lab: Lab, tmp_path: Path) -> None:
    files = ("PASSWORD", "CLUSTER.YAML")
    changes = {
        name: tuple(str(tmp_path / word) if word in files else word for word in args) for name, args in CHANGES.items()
    }
    (tmp_path / "PASSWORD").write_text("a-password")
    (tmp_path / "CLUSTER.YAML").write_text("topics: {Fresh: {}}\n")
    commands = WORDS | {name: (*args, "--dry-run") for name, args in changes.items() if name not in NOT_OF_BROKERS}
    lab.sign(ADMIN)
    for name, args in commands.items():
        done = lab.run(name, *args)
        assert "NO_PERMISSION" not in done.err or "The subject is not exist" in done.err, (name, done.err)
        assert "signature" not in done.err.lower(), (name, done.err)
    for key in (None, (ADMIN[0], "wrong-secret"), ("nobody", "admin-secret")):
        lab.sign(key)
        for name, args in commands.items():
            done = lab.run(name, *args)
            assert done.code in (1, 3), (name, key, done)
            assert done.code == 3 or "missing" in done.err, (name, key, done)


@pytest.mark.parametrize("key", [None, (ADMIN[0], "wrong-secret"), READER])
def test_nothing_is_changed_without_the_right(key: tuple[str, str] | None, lab: Lab) -> None:
    def state() -> list[str]:
        return [lab.run(name, *args).out for name, args in (("topic list", ()), ("group list", ()), ("config", ()))]

    before = state()
    lab.sign(key)
    for name, args in DONE.items():
        if key == READER and lab.judge.engine != "4.9" and not name.startswith("topic"):
            continue  # 5.x judges a request by its header: the settings of a group are in the body, for example
        done = lab.run(name, *args, "--yes")
        assert done.code in (1, 3), (name, done)
        assert "NO_PERMISSION" in done.err or "SYSTEM_ERROR" in done.err, (name, done.err)
    lab.sign(ADMIN)
    assert state() == before
