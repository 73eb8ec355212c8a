"""Look for what is wrong in a live cluster. Nothing is changed, and no group is asked for messages."""

import re
import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from formats.config.properties import parse_properties
from formats.errors import FormatError
from formats.fastjson.declare import read_body
from formats.remoting import admin as a
from formats.remoting.bodies import ClusterInfo, KVTable
from formats.remoting.codes import MASTER_ID, ResponseCode
from formats.remoting.codes import RequestCode as C
from formats.topics import DLQ_PREFIX, RETRY_PREFIX, SYSTEM_TOPICS
from rmqtool.admin.doctor.codes import CODES
from rmqtool.admin.doctor.static_topics import judge
from rmqtool.admin.live.brokers import fetch_connections
from rmqtool.admin.live.groups import LiveGroupLag, lag_of
from rmqtool.admin.live.questions import TIMEOUT, Node, Questions, Warn, ask, body
from rmqtool.admin.live.settings import release_of_broker
from rmqtool.admin.live.static_topics import fetch_parts
from rmqtool.admin.live.tables import Ranges, Topics, fetch_groups, fetch_ranges, fetch_topics
from rmqtool.admin.target import Target
from rmqtool.client.cluster.errors import ClientError
from rmqtool.contract import PlainRow
from rmqtool.remoting.errors import RemotingError
from rmqtool.rules.releases import Release
from rmqtool.services.lookup.topics import permission
from rmqtool.store.check.codes.code import INFO, SEVERITIES
from rmqtool.store.config.fit import find_ignored_lines
from rmqtool.store.layout.broker_conf import BrokerConf
from rmqtool.words import counted

_SKEW = 5_000  # ms between two clocks
_BEHIND = 256 << 20  # bytes of the log that a slave may lack (haMaxGapNotInSync)
_FULL, _FILLING = 90, 75  # percent of a disk (diskSpaceWarningLevelRatio, diskMaxUsedSpaceRatio)
_MANY_RETRIES = 1000
_RECENT = 3_600_000  # ms
_UNEVEN, _ENOUGH = 10, 1000  # times the average; messages of a topic
_RUNTIME = re.compile(r"\[ ?(\d+) days, (\d+) hours, (\d+) minutes, (\d+) seconds ?\]")
# fields that brokers report, under names that no file can set
_FIELDS = frozenset({
    "isEnableBatchPush", "isScanAvailableNameSrv", "isBrokerContainer", "isInBrokerContainer", "timerCheckMetricsWhen",
    "timerEnableDisruptor", "timerStopDequeue", "timerWarmEnable",
})  # fmt: skip
_MOST_CLIENTS = 200  # of a group, that are asked what they want


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterFinding(PlainRow):
    """Something that is wrong, or may be."""

    severity: str
    code: str
    server: str | None  # a broker or a name server
    topic: str | None
    group: str | None
    actual: str
    fix: str


def examine(target: Target, warn: Warn) -> list[ClusterFinding]:
    """The findings of a cluster, the worst first.

    Args:
        warn: called with each reason why the examination is incomplete.

    Raises:
        ClientError, RemotingError: no name server or no broker answers.
    """
    return ask(target, warn, lambda questions: _Examination(questions).run())


class _Examination:
    def __init__(self, questions: Questions) -> None:
        self._questions = questions
        self._found: list[ClusterFinding] = []
        self._clients: dict[str, dict[str, Node]] = defaultdict(dict)  # group to client id to one of its brokers
        self._asked: set[str] = set()  # groups whose clients are known from every broker
        self._static: dict[str, int] = {}  # static topics, and how many queues each has

    async def run(self) -> list[ClusterFinding]:
        questions = self._questions
        nodes = await questions.nodes()
        await self._check_name_servers()
        runtime = await self._runtime(nodes)
        await self._settings(runtime)
        masters = [node for node in await questions.masters() if node in runtime]
        if not masters:
            raise ClientError(f"no broker answers: {'; '.join(questions.reasons())}")
        tables = await fetch_topics(questions, masters)
        places = [(node, topic) for node, table in tables.items() for topic in table if topic not in SYSTEM_TOPICS]
        ranges = await fetch_ranges(questions, places)
        self._topics(tables, ranges)
        await self._check_static_topics(masters, tables)
        lags = await lag_of(questions, masters)
        await self._groups(masters, tables, lags)
        self._check_waiting(tables, ranges, lags)
        order = {name: number for number, name in enumerate(SEVERITIES)}
        return sorted(self._found, key=lambda finding: order[finding.severity])

    def _add(
        self, code: str, actual: str, *, server: str | None = None, topic: str | None = None,
        group: str | None = None, **more: Any,
    ) -> None:  # fmt: skip
        fields: dict[str, Any] = {"severity": CODES[code].severity, "fix": CODES[code].fix, **more}
        for name, value in (("TOPIC", topic), ("GROUP", group)):
            if value is not None:
                fields["fix"] = fields["fix"].replace(name, value)
        self._found.append(ClusterFinding(code=code, server=server, topic=topic, group=group, actual=actual, **fields))

    # -- servers ------------------------------------------------------------------------------------------------------

    async def _check_name_servers(self) -> None:
        servers = self._questions.name_servers()
        views: dict[Node, frozenset[tuple[str, int, str]]] = {}
        for node in servers:
            request = self._questions.cluster.request(C.GET_BROKER_CLUSTER_INFO)
            try:
                response = await self._questions.cluster.call(node.address, request, TIMEOUT)
                info = read_body(ClusterInfo, response.body)
            except (ClientError, RemotingError, FormatError) as err:
                self._add("namesrv-silent", str(err), server=node.address)
                continue
            views[node] = frozenset(
                (broker.broker_name, broker_id, address)
                for broker in info.broker_addr_table.values()
                for broker_id, address in broker.broker_addrs.items()
            )
        everywhere = frozenset().union(*views.values()) if views else frozenset[tuple[str, int, str]]()
        for node, view in views.items():
            for name, broker_id, address in sorted(everywhere - view):
                self._add("namesrv-differ", f"does not know {name} (id {broker_id}) at {address}", server=node.address)

    async def _runtime(self, nodes: list[Node]) -> Mapping[Node, Mapping[str, str]]:
        questions = self._questions
        sent: dict[Node, float] = {}

        async def fetch(node: Node) -> tuple[Mapping[str, str], float]:
            sent[node] = time.time()
            table = await questions.fetch(node, C.GET_BROKER_RUNTIME_INFO, body(KVTable), what="its state is")
            return (table.table if table is not None else {}), time.time()

        answers = await questions.collect(nodes, fetch)
        for node in nodes:
            if node not in answers:
                self._add("broker-silent", f"{node.address} does not answer", server=node.name)
        for name in dict.fromkeys(node.name for node in nodes):
            if not any(node.is_master for node in nodes if node.name == name):
                self._add("broker-no-master", "only slaves are registered", server=name)
        ends = {node.name: _number(answers[node][0].get("commitLogMaxOffset")) for node in answers if node.is_master}
        for node, (table, answered) in answers.items():
            self._check_clock(node, table, sent[node], answered)
            end, own = ends.get(node.name), _number(table.get("commitLogMaxOffset"))
            if not node.is_master and end is not None and own is not None and end - own > _BEHIND:
                self._add("slave-behind", f"{node.address} lacks {end - own} bytes of the log", server=node.name)
        return {node: table for node, (table, _answered) in answers.items()}

    def _check_clock(self, node: Node, table: Mapping[str, str], sent: float, answered: float) -> None:
        match, boot = _RUNTIME.fullmatch(table.get("runtime", "")), _number(table.get("bootTimestamp"))
        if match is None or boot is None:
            return
        days, hours, minutes, seconds = map(int, match.groups())
        now = boot + ((days * 24 + hours) * 60 + minutes) * 60_000 + seconds * 1000  # up to a second later
        early, late = now - answered * 1000, now + 1000 - sent * 1000
        if early > _SKEW or late < -_SKEW:
            seconds_off = (early if early > 0 else late) / 1000
            word = "ahead of" if seconds_off > 0 else "behind"
            self._add("clock-skew", f"{abs(seconds_off):.0f} s {word} this machine", server=node.name)

    async def _settings(self, runtime: Mapping[Node, Mapping[str, str]]) -> None:
        async def fetch(node: Node) -> Mapping[str, str]:
            settings = await self._questions.fetch(node, C.GET_BROKER_CONFIG, parse_properties, what="its settings are")
            return settings or {}

        for node, settings in (await self._questions.collect([*runtime], fetch)).items():
            release = release_of_broker(runtime[node].get("brokerVersionDesc"))
            if release is not None:
                self._check_setting_names(node, settings, release)
            ratios = [
                float(text)
                for name, text in runtime[node].items()
                if name.startswith("commitLogDiskRatio") and re.fullmatch(r"[01]\.[0-9]{1,20}", text)
            ]
            used = max(ratios, default=0.0) * 100
            full = _number(settings.get("diskSpaceWarningLevelRatio")) or _FULL
            filling = _number(settings.get("diskMaxUsedSpaceRatio")) or _FILLING
            if used >= full:
                self._add("disk-full", f"{used:.0f} % used, its limit is {full} %", server=node.name)
            elif used >= filling:
                self._add("disk-filling", f"{used:.0f} % used, it wants {filling} %", server=node.name)

    def _check_setting_names(self, node: Node, settings: Mapping[str, str], release: Release) -> None:
        own = {name: value for name, value in settings.items() if name not in _FIELDS}
        for line in find_ignored_lines(BrokerConf(own, node.address), release):
            if line.text is None and line.other is None:
                known = f"{line.name}; its release has {line.near}" if line.near is not None else line.name
                more = {} if line.near is not None else {"severity": INFO}  # a plug-in may have it
                self._add("setting-unknown", known, server=node.name, **more)

    # -- topics -------------------------------------------------------------------------------------------------------

    def _topics(self, tables: Mapping[Node, Topics], ranges: Ranges) -> None:
        for topic in sorted({topic for table in tables.values() for topic in table} - SYSTEM_TOPICS):
            configs = {node: table[topic] for node, table in tables.items() if topic in table}
            for node, config in configs.items():
                if config.read_queue_nums < config.write_queue_nums:
                    self._add(
                        "topic-reads-less", f"{config.read_queue_nums} read, {config.write_queue_nums} write queues",
                        server=node.name, topic=topic,
                        fix=CODES["topic-reads-less"].fix.replace(" N", f" {config.write_queue_nums}"),
                    )  # fmt: skip
            for name, values in (
                ("perm", {node: permission(config.perm) for node, config in configs.items()}),
                ("order", {node: str(config.order).lower() for node, config in configs.items()}),
            ):
                if len(set(values.values())) > 1:
                    each = ", ".join(f"{node.name} {value}" for node, value in values.items())
                    self._add("topic-differs", f"{name}: {each}", topic=topic)
            counts = [
                (node, queue_id, max(bounds.max_offset - bounds.min_offset, 0))
                for node in configs
                for queue_id, bounds in ranges.of(node, topic).items()
            ]
            total = sum(count for _node, _queue, count in counts)
            if topic.startswith((RETRY_PREFIX, DLQ_PREFIX)) or len(counts) < 2 or total < _ENOUGH:
                continue
            for node, queue_id, count in counts:
                others = (total - count) / (len(counts) - 1)
                if count > _UNEVEN * max(others, 1):
                    self._add(
                        "queues-uneven", f"queue {queue_id} has {count} of {total} messages", server=node.name,
                        topic=topic,
                    )  # fmt: skip

    async def _check_static_topics(self, masters: list[Node], tables: Mapping[Node, Topics]) -> None:
        parts = await fetch_parts(self._questions, masters)
        known = (await self._questions.cluster.brokers()).broker_addr_table
        registered = {name for name, broker in known.items() if MASTER_ID in broker.broker_addrs}
        complete = {node.name for node in parts} >= registered
        for topic in sorted({topic for table in parts.values() for topic in table}):
            mappings = {node.name: table[topic] for node, table in parts.items() if topic in table}
            self._static[topic] = max(mapping.total_queues for mapping in mappings.values())
            ordinary = [node.name for node, table in tables.items() if topic in table and node.name not in mappings]
            for finding in judge(mappings, ordinary, registered, complete=complete):
                more = {} if finding.severity is None else {"severity": finding.severity}
                self._add(finding.code, finding.actual, server=finding.broker, topic=topic, **more)

    # -- groups -------------------------------------------------------------------------------------------------------

    async def _groups(self, masters: list[Node], tables: Mapping[Node, Topics], lags: list[LiveGroupLag]) -> None:
        questions = self._questions
        configured = await fetch_groups(questions, masters)
        groups = {group for table in configured.values() for group in table} | {lag.group for lag in lags}
        pairs = [(group, node) for group in sorted(groups) for node in masters]
        answers = await fetch_connections(questions, pairs)
        models: dict[str, str | None] = {}
        for (group, node), answer in answers.items():
            if answer is None:
                continue
            for connection in answer.connection_set:
                self._clients[group].setdefault(connection.client_id, node)
            models[group] = answer.message_model
        self._asked = {group for group in groups if all((group, node) in answers for node in masters)}
        behind: dict[str, int] = defaultdict(int)
        for lag in lags:
            behind[lag.group] += lag.behind
        for group in sorted(self._asked):
            if behind[group] and not self._clients.get(group) and not group.startswith("CID_RMQ_SYS_"):
                self._add("group-offline", counted(behind[group], "message waits", "messages wait"), group=group)
        for group, clients in sorted(self._clients.items()):
            await self._ask_subscriptions(group, clients)
            if models.get(group) == "CLUSTERING":
                self._check_idle(group, len(clients), tables, lags)

    async def _ask_subscriptions(self, group: str, clients: Mapping[str, Node]) -> None:
        """Ask each client what it subscribes to; clients that do not answer are left out."""
        if len(clients) < 2:
            return
        cluster = self._questions.cluster

        async def fetch(client: tuple[str, Node]) -> frozenset[tuple[str, str]] | None:
            header = a.RunningInfo(consumer_group=group, client_id=client[0])
            try:
                request = cluster.request(C.GET_CONSUMER_RUNNING_INFO, header)
                response = await cluster.call(client[1].address, request, TIMEOUT)
                if response.code != ResponseCode.SUCCESS:
                    return None
                info = read_body(a.ConsumerRunningInfo, response.body)
            except (ClientError, RemotingError, FormatError):
                return None  # clients of other languages, and those behind a proxy
            return frozenset(
                (want.topic, want.sub_string)
                for want in info.subscription_set
                if not want.topic.startswith(RETRY_PREFIX)
            )

        answers = await self._questions.collect([*clients.items()][:_MOST_CLIENTS], fetch)
        views: dict[frozenset[tuple[str, str]], list[str]] = defaultdict(list)
        for (client_id, _node), wants in answers.items():
            if wants is not None:
                views[wants].append(client_id)
        if len(views) > 1:
            each = "; ".join(
                f"{ids[0]}{f' and {len(ids) - 1} more' if len(ids) > 1 else ''}: "
                + (", ".join(f"{topic} {expression}" for topic, expression in sorted(wants)) or "nothing")
                for wants, ids in views.items()
            )
            self._add("group-differs", each, group=group)

    def _check_idle(self, group: str, clients: int, tables: Mapping[Node, Topics], lags: list[LiveGroupLag]) -> None:
        for topic in sorted({lag.topic for lag in lags if lag.group == group}):
            queues = sum(table[topic].read_queue_nums for table in tables.values() if topic in table)
            queues = self._static.get(topic, queues)
            if not topic.startswith(RETRY_PREFIX) and 0 < queues < clients:
                self._add(
                    "clients-idle",
                    f"{counted(clients, 'client')}, {counted(queues, 'queue')}",
                    group=group,
                    topic=topic,
                )

    def _check_waiting(self, tables: Mapping[Node, Topics], ranges: Ranges, lags: list[LiveGroupLag]) -> None:
        retries: dict[str, int] = defaultdict(int)
        for lag in lags:
            if lag.topic.startswith(RETRY_PREFIX):
                retries[lag.group] += lag.behind
        for group, count in sorted(retries.items()):
            if count > _MANY_RETRIES:
                self._add(
                    "retries-many",
                    counted(count, "message waits", "messages wait"),
                    group=group,
                    topic=RETRY_PREFIX + group,
                )
        now = time.time() * 1000
        for topic in sorted({topic for table in tables.values() for topic in table if topic.startswith(DLQ_PREFIX)}):
            queues = [bounds for node in tables for bounds in ranges.of(node, topic).values()]
            newest = max((bounds.last_update_timestamp for bounds in queues), default=0)
            if now - newest < _RECENT:
                count = sum(max(bounds.max_offset - bounds.min_offset, 0) for bounds in queues)
                minutes = max(now - newest, 0) / 60_000
                self._add(
                    "dead-letters-grow", f"{count} dead letters, the newest {minutes:.0f} minutes old",
                    group=topic.removeprefix(DLQ_PREFIX), topic=topic,
                )  # fmt: skip


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and re.fullmatch("-?[0-9]{1,18}", text) else None
