"""Summary of a live cluster, and the tables of its brokers that correspond to config files."""

from dataclasses import asdict, dataclass
from typing import Any

from formats.config.files import kind_of
from formats.errors import FormatError
from formats.fastjson.read import loads
from formats.fastjson.values import Value
from formats.remoting.codes import RequestCode as C
from rmqtool.admin.live.brokers import BrokerStatus, LiveBrokers
from rmqtool.admin.live.questions import Node, Questions, Warn, ask
from rmqtool.admin.live.tables import fetch_groups, fetch_offsets
from rmqtool.admin.live.topics import LiveTopics
from rmqtool.admin.target import Target
from rmqtool.contract import PlainRow
from rmqtool.errors import BadValue, UnreadableStore
from rmqtool.services.lookup.info import TopicInfo

TABLES = {
    "consumerOffset.json": C.GET_ALL_CONSUMER_OFFSET,
    "delayOffset.json": C.GET_ALL_DELAY_OFFSET,
    "subscriptionGroup.json": C.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
    "topics.json": C.GET_ALL_TOPIC_CONFIG,
}
"""Config files whose content brokers report."""
TABLES_OF_5 = {"messageRequestMode.json": C.GET_ALL_MESSAGE_REQUEST_MODE}
"""Those that only brokers of 5.x report, on request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterFacts:
    """The result of ``info``: the fields of :class:`~rmqtool.services.lookup.info.StoreInfo`, and the brokers.

    Fields about files are None.
    """

    store: str
    version: str | None  # None if brokers differ
    versionReason: str
    abort: None = None
    abortPid: None = None
    lock: None = None
    lockPid: None = None
    minPhyOffset: int | None  # this and the next: only for a single master
    maxPhyOffset: int | None
    firstStoreTimestamp: int | None
    lastStoreTimestamp: int | None
    files: None = None
    checkpoint: None = None
    topics: list[TopicInfo]
    groups: list[str]
    configs: None = None
    problems: list[str]
    identity: None = None
    epochs: None = None
    tiered: None = None
    roles: None = None
    brokers: list[BrokerStatus]

    def to_dict(self) -> dict[str, Any]:
        """The fields for machine output."""
        return asdict(self)


def cluster_facts(target: Target, say: Warn) -> ClusterFacts:
    """Query everything; missing answers are listed as problems in the result.

    Raises:
        ClientError, RemotingError: nothing could be queried.
    """
    problems: list[str] = []

    async def work(questions: Questions) -> ClusterFacts:
        brokers = await LiveBrokers(target, problems.append).gather_statuses(questions)
        topics = await LiveTopics(target, problems.append, lambda _text: None).gather_summaries(questions)
        nodes = await questions.masters()
        groups = {group for table in (await fetch_groups(questions, nodes)).values() for group in table}
        for entries in (await fetch_offsets(questions, nodes)).values():
            groups |= {entry.group for entry in entries}
        masters = [broker for broker in brokers if broker.role == "master"]
        versions = {broker.version for broker in brokers}
        first = [time for broker in masters if (time := broker.earliestMessageTimestamp) is not None]
        last = [time for topic in topics if (time := topic.lastStoreTimestamp) is not None]
        single = masters[0] if len(masters) == 1 else None
        return ClusterFacts(
            store=target.text,
            version=versions.pop() if len(versions) == 1 else None,
            versionReason="its brokers say so",
            minPhyOffset=single.commitLogMinOffset if single is not None else None,
            maxPhyOffset=single.commitLogMaxOffset if single is not None else None,
            firstStoreTimestamp=min(first, default=None),
            lastStoreTimestamp=max(last, default=None),
            topics=[
                TopicInfo(
                    topic=topic.topic,
                    queues=topic.queues,
                    messages=topic.messages,
                    configured=True,
                    nature=topic.nature,
                    inTierAlone=None,
                )
                for topic in topics
            ],
            groups=sorted(groups),
            problems=problems,
            brokers=brokers,
        )

    facts = ask(target, problems.append, work)
    say("brokers report neither facts about files nor sums over several logs: null in machine output")
    return facts


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveConfig(PlainRow):
    """A table of one broker, under the name of its file."""

    name: str
    bytes: int | None
    kind: str | None
    readable: bool
    error: str | None
    brokerName: str


def list_tables(target: Target, warn: Warn) -> list[LiveConfig]:
    """The tables of all brokers, and whether they can be read; brokers do not report their sizes on disk."""

    async def work(questions: Questions) -> list[LiveConfig]:
        places = [(node, name) for node in await questions.masters() for name in TABLES]
        answers = await questions.collect(places, lambda place: fetch_table(questions, *place))
        rows = []
        for node, name in places:
            if (node, name) not in answers:
                continue
            model, error = kind_of(name), None
            try:
                if model is not None:
                    model.read(answers[node, name])
            except FormatError as err:
                error = str(err)
            rows.append(
                LiveConfig(
                    name=name,
                    bytes=None,
                    kind=model.__name__ if model else None,
                    readable=error is None,
                    error=error,
                    brokerName=node.name,
                )
            )
        return rows

    return ask(target, warn, work)


def read_table(target: Target, name: str, broker: str | None, warn: Warn) -> Any:
    """One table as plain values.

    Raises:
        UnreadableStore: brokers do not report such a file, or none answers.
        BadValue: there are several brokers, and none is named.
    """
    if name not in TABLES | TABLES_OF_5:
        raise UnreadableStore(f"{name}: brokers do not report it; they report {', '.join(TABLES | TABLES_OF_5)}")

    async def work(questions: Questions) -> Value:
        nodes = [node for node in await questions.masters() if broker in (None, node.name, node.address)]
        if len(nodes) != 1:
            names = ", ".join(node.name for node in await questions.masters())
            raise BadValue(f"give --broker, one of {names}")
        return next(iter((await questions.tables(nodes, lambda node: fetch_table(questions, node, name))).values()))

    return ask(target, warn, work)


async def fetch_table(questions: Questions, node: Node, name: str) -> Value:
    """A table of one broker as plain values.

    Raises:
        Unanswered: the broker does not answer.
    """
    code = (TABLES | TABLES_OF_5)[name]
    return await questions.fetch(node, code, lambda body: loads(body, cycles=False), what=f"{name} is")
