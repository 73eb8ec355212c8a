"""Settings of brokers side by side, and beside a file or the defaults of their releases; settings of name servers."""

import re
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

from formats.remoting.codes import RequestCode as C
from rmqtool.admin.live.brokers import fetch_runtime, fetch_settings
from rmqtool.admin.live.questions import Node, Questions, Warn, ask, read_settings
from rmqtool.admin.target import Target
from rmqtool.client.cluster.errors import ClientError
from rmqtool.contract import PlainRow
from rmqtool.rules.releases import RELEASES, Release, release_named
from rmqtool.store.config.settings import settings_of

OWN = (
    "brokerName", "brokerId", "brokerIP?", "brokerRole", "*listenPort", "*ListenPort", "storePath*", "haMasterAddress",
    "rmqHome", "brokerConfigPath", "aclFile", "*BrokerAddr",
)  # fmt: skip
"""Settings in which the brokers of a cluster are meant to differ."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSettingDifference(PlainRow):
    """A setting of one broker that is not as elsewhere."""

    name: str
    value: str | None  # None where the broker does not have it
    other: str | None  # in the file, or the default; None between brokers
    cluster: str
    brokerName: str
    brokerId: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NameServerSetting(PlainRow):
    """One setting of one name server."""

    name: str
    value: str
    server: str


def release_of_broker(description: str | None) -> Release | None:
    """The release of a broker, by a description like ``V5_3_3``; None if its settings are not known."""
    match = re.match(r"V([0-9]+)_([0-9]+)_", description or "")
    name = f"{match[1]}.{match[2]}" if match is not None else ""
    return release_named(name) if name in RELEASES else None


def compare_settings(
    target: Target,
    warn: Warn,
    wanted: Callable[[str], bool],
    *,
    file: Mapping[str, str] | None,
    defaults: bool,
    own: bool,
) -> list[BrokerSettingDifference]:
    """What brokers do not have in common, or not as in a file, or not by default; by name and broker.

    Args:
        file: the settings to compare with.
        defaults: compare with the defaults of each broker's release.
        own: also settings in which brokers are meant to differ.

    Raises:
        ClientError, RemotingError: no broker answers.
    """

    async def work(questions: Questions) -> list[BrokerSettingDifference]:
        nodes = await questions.nodes()
        tables = await questions.tables(nodes, lambda node: fetch_settings(questions, node))
        expected: dict[Node, Mapping[str, str | None]] = {}
        if file is not None:
            expected = dict.fromkeys(tables, file)
        elif defaults:
            runtimes = await questions.collect(tables, lambda node: fetch_runtime(questions, node))
            for node, runtime in runtimes.items():
                release = release_of_broker(runtime.get("brokerVersionDesc"))
                if release is None:
                    warn(f"{node.name}: the defaults of {runtime.get('brokerVersionDesc')} are not known")
                else:
                    expected[node] = _defaults(release, tables[node])
        rows = _between(tables) if file is None and not defaults else _beside(tables, expected)
        return [row for row in rows if wanted(row.name) and (own or not _is_own(row.name))]

    return ask(target, warn, work)


def _is_own(name: str) -> bool:
    return any(fnmatchcase(name, glob) for glob in OWN)


def _defaults(release: Release, table: Mapping[str, str]) -> dict[str, str | None]:
    """The defaults of settings that a broker reports; without those that depend on the machine."""
    known = settings_of(release)
    return {
        name: _text(known[name].default) for name in table if name in known and known[name].default is not None
    }  # fmt: skip


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _between(tables: Mapping[Node, Mapping[str, str]]) -> list[BrokerSettingDifference]:
    values: dict[str, dict[Node, str | None]] = defaultdict(dict)
    for name in {name for table in tables.values() for name in table}:
        values[name] = {node: table.get(name) for node, table in tables.items()}
    return [
        _row(name, value, None, node)
        for name, by_node in sorted(values.items())
        if len({_plain(name, value) for value in by_node.values()}) > 1
        for node, value in sorted(by_node.items())
    ]


def _beside(
    tables: Mapping[Node, Mapping[str, str]], expected: Mapping[Node, Mapping[str, str | None]]
) -> list[BrokerSettingDifference]:
    return sorted(
        (
            _row(name, tables[node].get(name), other, node)
            for node, table in expected.items()
            for name, other in table.items()
            if _plain(name, tables[node].get(name)) != _plain(name, other)
        ),
        key=lambda row: (row.name, row.cluster, row.brokerName, row.brokerId),
    )


def _plain(name: str, value: str | None) -> object:
    """A value as a broker of the newest release reads it: TRUE is true, 010 is 10."""
    setting = settings_of(max(RELEASES.values(), key=lambda release: release.version)).get(name)
    taken = setting.takes(value.strip()) if setting is not None and value is not None else None
    return value if taken is None else taken


def _row(name: str, value: str | None, other: str | None, node: Node) -> BrokerSettingDifference:
    return BrokerSettingDifference(
        name=name, value=value, other=other, cluster=node.cluster, brokerName=node.name, brokerId=node.broker_id
    )


def list_name_server_settings(target: Target, warn: Warn, wanted: Callable[[str], bool]) -> list[NameServerSetting]:
    """The settings of every name server, by name and server.

    Raises:
        ClientError: no name server answers.
    """

    async def work(questions: Questions) -> list[NameServerSetting]:
        async def fetch(node: Node) -> Mapping[str, str]:
            return await fetch_name_server_settings(questions, node)

        tables = await questions.collect(questions.name_servers(), fetch)
        if not tables:
            raise ClientError(f"no name server answers: {'; '.join(questions.reasons())}")
        rows = [
            NameServerSetting(name=name, value=value, server=node.address)
            for node, table in tables.items()
            for name, value in table.items()
            if wanted(name)
        ]
        return sorted(rows, key=lambda row: (row.name, row.server))

    return ask(target, warn, work)


async def fetch_name_server_settings(questions: Questions, node: Node) -> Mapping[str, str]:
    """The settings of one name server.

    Raises:
        Unanswered: it does not answer.
    """
    read = read_settings("orderMessageEnable")
    return await questions.fetch(node, C.GET_NAMESRV_CONFIG, read, what="its settings are") or {}
