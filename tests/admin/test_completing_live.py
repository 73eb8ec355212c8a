"""Completion of topics, groups, brokers, clients and targets of a live cluster: in time, or nothing."""

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from rmqtool.admin.live import names
from rmqtool.cli.startup.completing import candidates
from rmqtool.client import ClientOptions, PushConsumer, Received
from tests.admin.test_failures import FAILURES, namesrv_of
from tests.cli.test_completing import ask
from tests.client.peers import serving
from tests.interop.serving import NAME, Serving


def test_names_of_a_cluster(example_broker: Serving) -> None:
    target = f"rocketmq://{example_broker.namesrv}"
    assert {"Orders", "Sequenced"} <= {*candidates(["topic", "show", target], "")}
    assert {"lab-consumer", "lab-orderly"} <= {*candidates(["group", "reset", target], "")}
    assert "lab-consumer" in candidates(["group", "lag", target, "--group"], "")
    assert "Orders" in candidates(["dlq", "list", target, "-t"], "")
    assert list(candidates(["config", target], "")) == []


def test_brokers_and_clients_of_a_cluster(example_broker: Serving) -> None:
    target = f"rocketmq://{example_broker.namesrv}"
    assert {*candidates(["write-perm", "wipe", target], "")} == {NAME}
    assert {*candidates(["topic", "create", target, "New", "--broker"], "")} == {NAME}
    assert list(candidates(["write-perm", "wipe", "store"], "")) == []
    words = ["client", "stack", target, "lab-consumer", "--client"]
    assert {*candidates(words, "")} == set()

    async def listen(messages: Sequence[Received]) -> None:
        """Consume them."""

    async def find() -> set[str]:
        options = ClientOptions(namesrv=example_broker.namesrv, client_id="10.0.0.1@77#99")
        async with PushConsumer(options, "lab-consumer", {"Orders": "*"}, listen):
            return await asyncio.to_thread(lambda: {*candidates(words, "")})

    assert asyncio.run(find()) == {"10.0.0.1@77#99"}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_in_each_shell(shell: str, example_broker: Serving) -> None:
    line = f"rmqtool topic show rocketmq://{example_broker.namesrv} Ord"
    assert "Orders" in ask(shell, line).out
    if shell == "bash":  # it takes colons for words of their own
        assert "Orders" in ask(shell, line.replace(":", " : ")).out


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_profiles(shell: str, example_broker: Serving, tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text(f'[target.lab]\nnamesrv = "{example_broker.namesrv}"\n[target.prod]\nnamesrv = "127.0.0.1:1"\n')
    known = {"RMQTOOL_CONFIG": str(config)}
    assert "@lab" in ask(shell, "rmqtool topic list @l", **known).out
    assert "Orders" in ask(shell, "rmqtool topic show @lab O", **known).out
    if shell == "bash":
        assert ask(shell, "rmqtool topic list @ l", **known).out == "lab\n"
        assert "Orders" in ask(shell, "rmqtool topic show @ lab O", **known).out
    assert ask(shell, "rmqtool topic show @none O", **known).err == ""


@pytest.mark.parametrize("failing", ["gone", "silent", "refusing", "wrong"])
def test_brokers_that_fail(failing: str, example_broker: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    assert failing in FAILURES
    with serving(namesrv_of(example_broker.broker, failing)) as namesrv:
        started = time.monotonic()
        result = {*candidates(["topic", "show", f"rocketmq://{namesrv}"], "")}
        assert time.monotonic() - started < names.PATIENCE + 1
        assert failing == "silent" or "Orders" in result
    assert list(candidates(["topic", "show", "rocketmq://127.0.0.1:1"], "")) == []
    assert list(candidates(["topic", "show", "rocketmq://nonsense"], "")) == []
