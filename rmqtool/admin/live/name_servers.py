"""What name servers hold besides routes: the KV configuration."""

from collections.abc import Mapping
from dataclasses import dataclass

from formats.remoting import namesrv as n
from formats.remoting.bodies import KVTable
from formats.remoting.codes import RequestCode as C
from formats.remoting.codes import ResponseCode
from rmqtool.admin.live.questions import Node, Questions, Warn, ask, body
from rmqtool.admin.target import Target
from rmqtool.client.cluster.errors import ClientError
from rmqtool.contract import PlainRow


@dataclass(frozen=True, slots=True, kw_only=True)
class KvEntry(PlainRow):
    """An entry of the KV configuration of one name server."""

    namespace: str
    key: str
    value: str
    server: str


def list_entries(target: Target, namespace: str, key: str | None, warn: Warn) -> list[KvEntry]:
    """The entries of a namespace, or one of them, by key and name server.

    Args:
        warn: called with each reason why the answer is incomplete.

    Raises:
        ClientError: no name server answers.
    """

    async def work(questions: Questions) -> list[KvEntry]:
        tables = await questions.collect(
            questions.name_servers(), lambda node: fetch_entries(questions, node, namespace)
        )
        if not tables:
            raise ClientError(f"no name server answers: {'; '.join(questions.reasons())}")
        rows = [
            KvEntry(namespace=namespace, key=name, value=value, server=node.address)
            for node, table in tables.items()
            for name, value in table.items()
            if key in (None, name)
        ]
        return sorted(rows, key=lambda row: (row.key, row.server))

    return ask(target, warn, work)


async def fetch_entries(questions: Questions, node: Node, namespace: str) -> Mapping[str, str]:
    """The entries of a namespace of one name server.

    Raises:
        Unanswered: it does not answer.
    """
    table = await questions.fetch(
        node, C.GET_KVLIST_BY_NAMESPACE, body(KVTable), n.Namespace(namespace=namespace), what="its entries are",
        absent=(ResponseCode.QUERY_NOT_FOUND,),
    )  # fmt: skip
    return {} if table is None else table.table
