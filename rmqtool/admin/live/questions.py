"""Queries to all brokers of a cluster in parallel. Every unanswered one is reported."""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Mapping, Sized
from dataclasses import dataclass
from typing import Any, Self, TypeVar

from formats.config.properties import parse_properties
from formats.errors import BadText, FormatError
from formats.fastjson.declare import Declared, read_body
from formats.remoting.codes import MASTER_ID, ControllerCode, RequestCode, ResponseCode
from formats.remoting.fields import from_fields
from formats.remoting.frame import Command
from rmqtool.admin.keys import credentials_for
from rmqtool.admin.target import Target
from rmqtool.client.cluster.cluster import ClientOptions, Cluster
from rmqtool.client.cluster.errors import BadAnswer, BrokerError, ClientError
from rmqtool.client.cluster.loop import Loop
from rmqtool.client.cluster.name_servers import check_name_server
from rmqtool.remoting.errors import NoAnswer, NotReached, RemotingError
from rmqtool.words import counted

T = TypeVar("T")
K = TypeVar("K")
D = TypeVar("D", bound=Declared)
Warn = Callable[[str], None]
Code = RequestCode | ControllerCode

TIMEOUT = 5.0
"""Seconds for a broker or name server to answer one query."""
_IN_FLIGHT = 64  # parallel queries
_STRIKES = 3  # invalid or missing answers until a broker is no longer queried


@dataclass(frozen=True, order=True)
class Node:
    """A broker: a master, or one of its slaves."""

    cluster: str
    name: str
    broker_id: int
    address: str

    @property
    def is_master(self) -> bool:
        return self.broker_id == MASTER_ID


class Unanswered(Exception):
    """A query has no answer; the failure was recorded."""


class Questions:
    """Queries to the brokers of a target.

    Args:
        warn: called at the end, once for each broker and kind of failure.
        limit: s after which no broker is asked or waited for any more.
    """

    def __init__(self, cluster: Cluster, target: Target, warn: Warn, limit: float | None = None) -> None:
        self.cluster, self._target, self._warn = cluster, target, warn
        self._limit, self._end = limit, None if limit is None else time.monotonic() + limit
        self._gone: dict[str, ClientError | RemotingError] = {}
        self._heard: set[str] = set()  # addresses of brokers that have answered at least once
        self._strikes: Counter[str] = Counter()
        self._failures: Counter[tuple[str, str]] = Counter()
        self._words: dict[tuple[str, str], str] = {}
        self._nodes: list[Node] | None = None

    async def nodes(self) -> list[Node]:
        """All brokers that the name servers know, or those of the target's cluster; sorted.

        Raises:
            RemotingError: no name server answers, or none with brokers.
            ClientError: there is no such cluster, or it has no brokers.
        """
        if self._nodes is None:
            self._nodes = await self._find_nodes()
        return self._nodes

    async def _find_nodes(self) -> list[Node]:
        info = await self.cluster.brokers()
        cluster = self._target.cluster
        if cluster is not None and cluster not in info.cluster_addr_table:
            names = ", ".join(sorted(info.cluster_addr_table)) or "none"
            raise ClientError(f"{self._target.text}: the name server knows no cluster {cluster}; it knows {names}")
        nodes = sorted(
            Node(broker.cluster, broker.broker_name, broker_id, address)
            for broker in info.broker_addr_table.values()
            if cluster is None or broker.cluster == cluster
            for broker_id, address in broker.broker_addrs.items()
        )
        if not nodes:
            raise ClientError(f"{self._target.text}: no broker is registered with the name server")
        return nodes

    async def masters(self) -> list[Node]:
        """One broker of each name: its master, or, with a warning, its first slave.

        Raises:
            RemotingError, ClientError: as :meth:`nodes`.
        """
        first: dict[tuple[str, str], Node] = {}
        for node in await self.nodes():
            first.setdefault((node.cluster, node.name), node)
        for node in first.values():
            if not node.is_master:
                self._warn(f"broker {node.name} has no master: what its slave {node.address} says may be behind")
        return list(first.values())

    async def fetch(
        self,
        node: Node,
        code: Code,
        read: Callable[[bytes], T],
        header: Declared | None = None,
        *,
        what: str,
        absent: Collection[int | str] = (),
        sent: bytes = b"",
    ) -> T | None:
        """Query a broker; returns the parsed body, or None if a code or a part of the remark in ``absent`` means that
        there is none.

        Args:
            read: parses the body; raises FormatError.
            what: names what is missing otherwise, with a verb: ``its topics are``.
            sent: body of the request.

        Raises:
            Unanswered: there is no answer; :meth:`tell` will report it.
        """
        return await self._fetch(node, code, lambda answer: read(answer.body), header, what, absent, sent)

    async def fetch_header(
        self, node: Node, code: Code, declared: type[D], header: Declared | None = None, *, what: str
    ) -> D:
        """As :meth:`fetch`, but returns the parsed header.

        Raises:
            Unanswered: there is no answer.
        """
        parsed = await self._fetch(node, code, lambda answer: from_fields(declared, answer.fields), header, what, ())
        assert parsed is not None  # nothing is absent
        return parsed

    async def fetch_header_if_any(
        self,
        node: Node,
        code: Code,
        declared: type[D],
        header: Declared | None = None,
        *,
        what: str,
        absent: Collection[int | str],
    ) -> D | None:
        """As :meth:`fetch_header`; None where a code of ``absent`` says that there is none.

        Raises:
            Unanswered: there is no answer.
        """
        return await self._fetch(node, code, lambda answer: from_fields(declared, answer.fields), header, what, absent)

    async def send(self, node: Node, code: Code, header: Declared | None = None, body: bytes = b"") -> None:
        """A request that changes something; it must be a success.

        Raises:
            BrokerError: it is refused.
            RemotingError: the server is not reached; or does not answer, and may have carried it out.
        """
        await self.cluster.ask(node.address, self.cluster.request(code, header, body), TIMEOUT)

    async def _fetch(
        self,
        node: Node,
        code: Code,
        read: Callable[[Command], T],
        header: Declared | None,
        what: str,
        absent: Collection[int | str],
        sent: bytes = b"",
    ) -> T | None:
        async def ask_broker() -> T | None:
            response = await self.cluster.call(node.address, self.cluster.request(code, header, sent), TIMEOUT)
            self._heard.add(node.address)
            if response.code in absent or (
                response.remark is not None
                and any(isinstance(text, str) and text in response.remark for text in absent)
            ):
                return None
            if node in self.name_servers():
                check_name_server(response, code, node.address)
            if response.code != ResponseCode.SUCCESS:
                raise BrokerError(response, node.address)
            with self.cluster.answers_of(node.address):
                try:
                    return read(response)
                except FormatError as err:
                    raise BadAnswer(f"{node.address}: not an answer to the request: {err}") from None

        return await self.attempt(node, what, ask_broker)

    async def attempt(self, node: Node, what: str, work: Callable[[], Awaitable[T]]) -> T:
        """Run requests to one broker; a broker that has failed too often is no longer asked.

        Args:
            what: names what is missing otherwise, with a verb.

        Raises:
            Unanswered: there is no answer; :meth:`tell` will report it.
        """
        failure = self._gone.get(node.address)
        if failure is not None:
            self._fail(node, what, failure)
            raise Unanswered
        try:
            return await self._in_time(node, work)
        except (ClientError, RemotingError) as err:
            self._strikes[node.address] += isinstance(err, RemotingError)
            silent = isinstance(err, NoAnswer) and node.address not in self._heard
            if silent or isinstance(err, NotReached) or self._strikes[node.address] >= _STRIKES:
                self._gone.setdefault(node.address, err)
            self._fail(node, what, err)
            raise Unanswered from err

    async def _in_time(self, node: Node, work: Callable[[], Awaitable[T]]) -> T:
        if self._end is None:
            return await work()
        try:
            async with asyncio.timeout(max(self._end - time.monotonic(), 0)):
                return await work()
        except TimeoutError:
            raise NoAnswer(f"{node.address}: no answer in the {self._limit:g} s for all questions") from None

    def _fail(self, node: Node, what: str, err: ClientError | RemotingError) -> None:
        kind = f"{type(err).__name__} {err.code}" if isinstance(err, BrokerError) else type(err).__name__
        key = (f"{node.name} {node.address} {kind}", what)
        self._failures[key] += 1
        self._words.setdefault(key, str(err))

    async def collect(self, items: Iterable[K], fetch: Callable[[K], Awaitable[T]]) -> dict[K, T]:
        """The answers for all items that have one, in their order; at most :data:`_IN_FLIGHT` queries run in
        parallel.
        """
        keys = list(items)
        source, answers = iter(keys), dict[K, T]()

        async def work() -> None:
            for item in source:
                try:
                    answers[item] = await fetch(item)
                except Unanswered:
                    continue

        async with asyncio.TaskGroup() as group:
            for _ in range(min(_IN_FLIGHT, len(keys))):
                group.create_task(work())
        return {item: answers[item] for item in keys if item in answers}

    async def need(self, answers: Awaitable[Mapping[K, T]], wanted: Sized | None = None) -> Mapping[K, T]:
        """Answers that are of use only as a whole.

        Args:
            answers: of :meth:`collect` or :meth:`tables`.
            wanted: what was asked for; None for one question.

        Raises:
            Unanswered: one is missing.
        """
        try:
            results = await answers
        except ClientError as err:
            raise Unanswered from err
        if len(results) < (1 if wanted is None else len(wanted)):
            raise Unanswered
        return results

    @property
    def target(self) -> Target:
        """The cluster."""
        return self._target

    def name_servers(self) -> list[Node]:
        """The name servers, each of which has a memory of its own."""
        return [Node("", address, MASTER_ID, address) for address in self._target.namesrv]

    def reasons(self) -> list[str]:
        """Why questions so far have no answer."""
        return list(dict.fromkeys(self._words.values()))

    def none_has(self, what: str) -> ClientError:
        """The error that no broker has something; it says which brokers did not answer, as they may have it."""
        reasons = "; ".join(self.reasons())
        return ClientError(
            f"{self._target.text}: no broker that answers has {what}; {reasons}"
            if reasons
            else f"{self._target.text}: no broker has {what}"
        )

    async def tables(self, nodes: Iterable[Node], fetch: Callable[[Node], Awaitable[T]]) -> dict[Node, T]:
        """As :meth:`collect`, for tables without which there is no result.

        Raises:
            ClientError: no broker answers.
        """
        answers = await self.collect(nodes, fetch)
        if not answers:
            raise ClientError(f"{self._target.text}: no broker answers: {'; '.join(self.reasons())}")
        return answers

    def tell(self) -> None:
        """Report what is missing."""
        for key, count in sorted(self._failures.items()):
            often = f" ({counted(count, 'question')})" if count > 1 else ""
            self._warn(f"{self._words[key]}: {key[1]} missing{often}")
        self._failures.clear()


def body(declared: type[D]) -> Callable[[bytes], D]:
    """A parser of a JSON body."""
    return lambda data: read_body(declared, data)


def client_options(target: Target) -> ClientOptions:
    """Options for a client of the target.

    Raises:
        BadValue: a setting of TLS or of keys is invalid.
        UnreadableStore: a file cannot be read.
    """
    tls = None
    if target.tls_config is not None:
        from rmqtool.remoting.tls import client_tls  # OpenSSL is slow to load

        tls = client_tls(target.tls_config)
    keys = credentials_for(target)
    return ClientOptions(namesrv=";".join(target.namesrv), timeout=TIMEOUT, tls=tls, credentials=keys)


def ask(
    target: Target, warn: Warn, work: Callable[[Questions], Coroutine[Any, Any, T]], limit: float | None = None
) -> T:
    """Connect, run queries, and report what is missing from the result.

    Args:
        limit: s, see :class:`Questions`.

    Raises:
        ClientError, RemotingError: nothing could be queried.
    """

    async def run() -> T:
        async with Cluster(options) as cluster:
            questions = Questions(cluster, target, warn, limit)
            result = await work(questions)
            questions.tell()
            return result

    options = client_options(target)
    try:
        return asyncio.run(run())
    except ExceptionGroup as group:  # raised by one of several parallel queries
        raise group.exceptions[0] from None


class Session:
    """Questions to a cluster by a program that does not run an event loop: one connection for all of them.

    A context manager; what is missing is reported at its end.

    Raises:
        BadValue: a setting of TLS or of keys is invalid.
        UnreadableStore: a file cannot be read.
        ClientError, RemotingError: nothing can be asked.
    """

    def __init__(self, target: Target, warn: Warn) -> None:
        self._target, self._warn = target, warn
        self._options = client_options(target)

    def __enter__(self) -> Self:
        self._loop = Loop()
        self._cluster = Cluster(self._options)
        try:
            self._loop.run(self._cluster.__aenter__())
        except BaseException:
            self._loop.close()
            raise
        self.questions = Questions(self._cluster, self._target, self._warn)
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._loop.run(self._cluster.close())
        finally:
            self._loop.close()
        self.questions.tell()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run questions, and return their result."""
        try:
            return self._loop.run(work)
        except ExceptionGroup as group:  # raised by one of several parallel queries
            raise group.exceptions[0] from None


def read_settings(name: str) -> Callable[[bytes], Mapping[str, str]]:
    """What parses the settings of a server, of which every server of its kind has the one with this name."""

    def read(data: bytes) -> Mapping[str, str]:
        settings = parse_properties(data)
        if name not in settings:
            raise BadText(0, f"settings without {name}")
        return settings

    return read
