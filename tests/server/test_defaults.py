"""Every default of a setting equals that of the brokers, read from their classes (test_broker_conf)."""

import ast
import asyncio
import importlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from formats.remoting import admin as a
from formats.remoting import headers as h
from formats.remoting.codes import RequestCode as C
from formats.remoting.fields import to_fields
from formats.remoting.frame import Command
from rmqtool.remoting.client import open_connection
from rmqtool.rules.releases import NEWEST, RELEASES, V4_9, Release, release_named
from rmqtool.server.broker.admin.status import _DEFAULTS
from rmqtool.server.serve import Served, ServeOptions
from rmqtool.store.config.settings import settings_of
from tests.server.serving import CONF, address, pull, send

ROOT = Path(__file__).parents[2]
# where we answer otherwise on purpose
_OTHER = {
    "transactionCheckInterval": "by release, below",
    "registerBrokerTimeoutMills": "by release, below",
    "autoDeleteUnusedStats": "by release, below",
    "totalReplicas": "0 stands for a group whose size is not stated: nothing is counted then",
    "listenPort": "BrokerStartup sets 10911 before it reads the file",
}
SERVED = tuple(map(release_named, RELEASES))


def _defaults() -> Iterator[tuple[str, str, Any]]:
    """(module, setting, default) of every call that reads a setting."""
    for path in sorted((ROOT / "rmqtool").rglob("*.py")):
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call):
                continue
            nodes = list(node.args) + [keyword.value for keyword in node.keywords if keyword.arg == "default"]
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if called == "setting":
                nodes = nodes[1:]
            elif called not in ("flag", "number"):
                continue
            if len(nodes) != 2 or not isinstance(nodes[0], ast.Constant) or not isinstance(nodes[0].value, str):
                continue
            names = {n.id for n in ast.walk(nodes[1]) if isinstance(n, ast.Name)}
            scope = vars(importlib.import_module(module)) if names else {}
            if names <= scope.keys() and not any(isinstance(n, ast.Call) for n in ast.walk(nodes[1])):
                yield module, nodes[0].value, eval(ast.unparse(nodes[1]), dict(scope))


def _wrong(name: str, taken: Any) -> list[str]:
    """Releases that have the setting with a different default."""
    known = {release: settings_of(release)[name].default for release in SERVED if name in settings_of(release)}
    return [
        f"{name}: {taken!r}, {release} has {value!r}" for release, value in known.items() if value not in (None, taken)
    ]


def test_defaults_that_are_read() -> None:
    result = list(_defaults())
    assert len(result) > 45
    wrong = {name: lines for _module, name, taken in result if name not in _OTHER and (lines := _wrong(name, taken))}
    assert wrong == {}


def test_defaults_that_are_told() -> None:
    for name, text in _DEFAULTS.items():
        defaults = [str(settings_of(setting)[name].default) for setting in SERVED if name in settings_of(setting)]
        assert {value.lower() for value in defaults} == {text.lower()}, name


# where each default that differs by release is kept, for the code that acts on it
_BY_RELEASE: dict[str, Callable[[Release], Any]] = {
    "autoDeleteUnusedStats": lambda release: release.drops_unused_stats,
    "registerBrokerTimeoutMills": lambda release: release.registration_timeout,
    "transactionCheckInterval": lambda release: release.transaction_check_interval,
}
# differ in the classes, and not in what a broker does
_NOT_SERVED = {
    "listenPort": "BrokerStartup sets 10911 before it reads the file",
    "transactionMetricFlushInterval": "config/transactionMetrics is left as it is",
}


def test_every_default_that_differs_by_release_is_kept() -> None:
    tables = {release: settings_of(release) for release in SERVED}
    differing = {
        name
        for name in set().union(*tables.values())
        if len({table[name].default for table in tables.values() if name in table}) > 1
    }
    assert differing == _BY_RELEASE.keys() | _NOT_SERVED.keys()
    for name, kept in _BY_RELEASE.items():
        assert {r: kept(r) for r in SERVED} == {r: table[name].default for r, table in tables.items()}, name


@pytest.mark.parametrize(
    ("release", "set_to"), [*((release, None) for release in SERVED), (V4_9, "true"), (NEWEST, "false")], ids=str
)
def test_defaults_by_release_are_acted_on(release: Release, set_to: str | None, tmp_path: Path) -> None:
    """What was counted of a deleted topic and group; how long name servers have to answer."""
    conf = CONF if set_to is None else {
        **CONF, "autoDeleteUnusedStats": set_to, "registerBrokerTimeoutMills": "7000",
    }  # fmt: skip
    dropped = release.is_5 if set_to is None else set_to == "true"

    async def run() -> None:
        given = ServeOptions(
            listen=("127.0.0.1", 0), namesrv_listen=("127.0.0.1", 0), create=True, release=release, broker_conf=conf
        )
        async with (
            Served(str(tmp_path / "store"), given) as served,
            open_connection(*address(served.broker_address)) as client,
        ):
            assert served.broker is not None
            settings = served.broker.context.settings
            expected = (24_000 if release.is_5 else 6000) if set_to is None else 7000
            assert settings.registration_timeout == expected

            async def counted(name: str, key: str) -> bool:
                fields = to_fields(h.Stats(stats_name=name, stats_key=key))
                return not (await client.call(Command(C.VIEW_BROKER_STATS_DATA, fields=fields))).code

            for topic in ("Orders", "Others"):
                await client.call(Command(C.SEND_MESSAGE_V2, fields=send(topic), body=b"x"))
                for group in ("g", "other"):
                    await client.call(Command(C.PULL_MESSAGE, fields=pull(0, topic, consumer_group=group)))
            fields = to_fields(h.Topic(topic="Orders"))
            assert not (await client.call(Command(C.DELETE_TOPIC_IN_BROKER, fields=fields))).code
            fields = to_fields(a.DeleteGroup(group_name="g"))
            assert not (await client.call(Command(C.DELETE_SUBSCRIPTIONGROUP, fields=fields))).code
            keys = (
                ("TOPIC_PUT_NUMS", "Orders"), ("TOPIC_PUT_NUMS", "Others"), ("GROUP_GET_NUMS", "Orders@other"),
                ("GROUP_GET_SIZE", "Others@g"), ("GROUP_GET_SIZE", "Others@other"),
            )  # fmt: skip
            here = [await counted(*key) for key in keys]
            assert here == ([False, True, False, False, True] if dropped else [True] * 5)

    asyncio.run(run())
