"""Names of topics, groups, brokers and clients of a live cluster, for completion: quickly, or not at all."""

import asyncio
from dataclasses import replace

from rmqtool.admin.live import questions
from rmqtool.admin.live.questions import Questions
from rmqtool.admin.live.tables import fetch_clients, fetch_groups, fetch_topics
from rmqtool.admin.target import Target
from rmqtool.client.cluster.cluster import Cluster
from rmqtool.client.cluster.errors import ClientError
from rmqtool.remoting.errors import RemotingError

PATIENCE = 1.5
"""Seconds after which a user would go on without completion."""


def names_of(target: Target, kind: str, group: str | None = None) -> set[str]:
    """The brokers, or the topics, groups or clients of all brokers that answer in time.

    Args:
        kind: ``topic``, ``group``, ``broker`` or ``client``.
        group: whose clients; of no group without it.

    Raises:
        BadValue, UnreadableStore: a setting of TLS or of keys is invalid.
    """

    async def work() -> set[str]:
        async with Cluster(replace(questions.client_options(target), timeout=PATIENCE)) as cluster:
            asked = Questions(cluster, target, lambda _text: None)
            nodes = await asked.masters()
            if kind == "broker":
                return {node.name for node in nodes}
            if kind == "client":
                answers = await asked.collect(
                    nodes if group else (), lambda node: fetch_clients(asked, node, str(group))
                )
                return {client for clients in answers.values() for client in clients}
            tables = await (fetch_topics if kind == "topic" else fetch_groups)(asked, nodes)
            return {name for table in tables.values() for name in table}

    async def hurry() -> set[str]:
        async with asyncio.timeout(PATIENCE):
            return await work()

    try:
        return asyncio.run(hurry())
    except (TimeoutError, ClientError, RemotingError, ExceptionGroup):
        return set()
