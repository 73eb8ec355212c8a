"""Accounts and access lists of the auth module, which a 5.x broker keeps in ``config/users`` and ``config/acls``."""

import json
from pathlib import Path

import pytest

from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.salvage.carve import Salvage
from tests import goldens, rocks
from tests.amounts import by_turns
from tests.cli.running import rmqtool

# as brokers of 5.3.3 and 5.5.0 write them
USERS = {
    b"alice": {"password": "secret-123", "subjectType": 1, "userStatus": 1, "userType": 1, "username": "alice"},
    b"bob": {"password": "secret-456", "subjectType": 1, "userStatus": 1, "userType": 2, "username": "bob"},
}
_ENTRY = {
    "actions": [3, 4], "decision": 1, "environment": {"sourceIps": ["192.168.0.0/24"]},
    "resource": {"resourceName": "T", "resourcePattern": 2, "resourceType": 4},
}  # fmt: skip
ACLS = {
    b"User:bob": {
        "policies": [{"entries": [_ENTRY], "policyType": 1}], "subject": {"subjectType": 1, "username": "bob"},
    }
}  # fmt: skip
CASES = ["broker-5.3.3", "rocksdb-5.5.0"]


@pytest.fixture(params=CASES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A store with accounts, its queues in files or in RocksDB."""
    store = goldens.unpack(request.param, tmp_path)
    for name, table in (("users", USERS), ("acls", ACLS)):
        values = {key: json.dumps(value).encode() for key, value in table.items()}
        rocks.write(store / "config" / name, {"default": values})
    return store


def test_they_are_shown_without_passwords(store: Path) -> None:
    rows = {row["name"]: row for row in json.loads(rmqtool("config", store, "--output", "json").out)}
    assert (rows["users"]["kind"], rows["acls"]["kind"]) == ("User", "Acl")
    shown = rmqtool("config", store, "users")
    assert "secret" not in shown.out + shown.err
    users = json.loads(shown.out)
    assert {name: user["userType"] for name, user in users.items()} == {"alice": 1, "bob": 2}
    assert json.loads(rmqtool("config", store, "acls").out) == {key.decode(): acl for key, acl in ACLS.items()}


@by_turns(7)
@pytest.mark.parametrize("verb", ["salvage", "export"])
def test_another_store_has_them(verb: str, store: Path, tmp_path: Path) -> None:
    before = rocks.content(store / "config" / "users")
    result = rmqtool(verb, store, tmp_path / "new", "--output", "json")
    assert result.code == 0, result.err
    assert {"config/acls", "config/users"} <= {*json.loads(result.out)["configs"]}
    for name in ("users", "acls"):
        assert rocks.content(tmp_path / "new" / "config" / name) == rocks.content(store / "config" / name)
    assert rocks.content(store / "config" / "users") == before
    assert rmqtool("check", tmp_path / "new", "-o", "ndjson").out == ""


def test_what_cannot_be_read_is_left_out_with_a_word(store: Path, tmp_path: Path) -> None:
    table = max((store / "config" / "users").glob("*.sst"), key=lambda path: path.stat().st_size)
    table.write_bytes(table.read_bytes()[:-20])
    report = Salvage(StoreLayout(str(store)), str(tmp_path / "new")).run()
    assert "config/users" in report.leftOut
    assert any("config/users is left out" in text for text in report.warnings)
    assert "config/acls" in report.configs
    assert rmqtool("config", store, "users").code == 5
    rows = map(json.loads, rmqtool("check", store, "-o", "ndjson").out.splitlines())
    assert ("config-database", "config/users") in [(row["code"], row["file"]) for row in rows]
    assert rmqtool("export", store, tmp_path / "other").code != 0
