"""Keys for signing requests: where they come from, and that they are never printed."""

from pathlib import Path

import pytest

from rmqtool.admin.keys import ACCESS_KEY, SECRET_KEY, credentials
from rmqtool.errors import BadValue, UnreadableStore
from rmqtool.remoting.signing import Credentials
from tests.amounts import by_turns
from tests.cli.running import rmqtool


@pytest.fixture(autouse=True)
def none_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ACCESS_KEY, raising=False)
    monkeypatch.delenv(SECRET_KEY, raising=False)


def test_a_file_as_mqadmin_has_it_counts_before_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert credentials(None) is None
    monkeypatch.setenv(ACCESS_KEY, "of")
    monkeypatch.setenv(SECRET_KEY, "the environment")
    assert credentials(None) == Credentials("of", "the environment")
    file = tmp_path / "tools.yml"
    file.write_text("# as shipped\naccessKey: rocketmq2\nsecretKey: 012345678  # as text\nother: [1, 2]\n")
    assert credentials(str(file)) == Credentials("rocketmq2", "012345678")
    file.write_text('"accessKey": \'a b\'\n"secretKey": 1e5\nsecurityToken: t\n')
    assert credentials(str(file)) == Credentials("a b", "1e5", "t")


@by_turns(2)
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not a file like mqadmin's tools.yml"),
        ("- s3cret", "not a file like"),
        ("accessKey: s3cret", "secretKey: not given"),
        ("accessKey: a\nsecretKey: [s3cret]", "secretKey: not given"),
        ("accessKey: a\nsecretKey:\n", "secretKey: not given"),
        ("accessKey: a\nsecretKey: 's3cret", "tools.yml:2: not YAML"),
        ("accessKey: &s3cret a\nsecretKey: *s3cret", "not YAML"),
        ("accessKey: s3cret: x", "tools.yml:1: not YAML"),
        ("[" * 5000 + "s3cret", "not YAML"),
        ("a" * 70_000, "larger than 65536 bytes"),
        ("accessKey: a\nsecretKey: s3cret\0", "not YAML"),
    ],
)
def test_a_file_that_is_none_is_one_error_without_its_secret(text: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "tools.yml"
    file.write_text(text)
    with pytest.raises(BadValue) as failed:
        credentials(str(file))
    assert message in str(failed.value)
    assert "s3cret" not in str(failed.value)
    result = rmqtool("send", "--namesrv", "127.0.0.1:1", "T", "--acl", file)
    assert result.code == 2
    assert "s3cret" not in result.err + result.out
    assert "Traceback" not in result.err


def test_half_of_the_keys_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SECRET_KEY, "s3cret")
    with pytest.raises(BadValue, match="one is set without the other") as failed:
        credentials(None)
    assert "s3cret" not in str(failed.value)
    with pytest.raises(UnreadableStore, match="No such file"):
        credentials(str(tmp_path / "nosuch"))
    with pytest.raises(UnreadableStore, match="directory"):
        credentials(str(tmp_path))
