"""Accounts of brokers of 4.9: plain access control, in ``plain_acl.yml``."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from formats.errors import BadText
from formats.fastjson.declare import from_json
from formats.fastjson.dialects import BODY
from formats.fastjson.read import loads
from formats.model.topics import DataVersion
from formats.remoting import admin as a
from formats.remoting.codes import RequestCode as C
from formats.remoting.codes import ResponseCode
from rmqtool.admin.live.brokers import fetch_settings
from rmqtool.admin.live.questions import Node, Questions, Warn, ask, body
from rmqtool.admin.target import Target
from rmqtool.client.cluster.errors import BadAnswer, ClientError
from rmqtool.contract import PlainRow

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountRow(PlainRow):
    """An account of one broker. Secrets are not shown."""

    accessKey: str
    admin: bool
    defaultTopicPerm: str | None
    defaultGroupPerm: str | None
    topicPerms: list[str]
    groupPerms: list[str]
    whiteRemoteAddress: str | None
    brokerName: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AddressRow(PlainRow):
    """An address, or pattern of addresses, whose clients need no account."""

    address: str
    brokerName: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessFileRow(PlainRow):
    """A file with accounts: how often it was changed over the network, and when last. 0 where it never was."""

    file: str
    counter: int
    timestamp: int  # ms
    brokerName: str


async def has_plain_access(questions: Questions, node: Node) -> bool:
    """Whether a broker has accounts of this kind. One that has none does not answer questions about them at all.

    Raises:
        Unanswered: it does not answer.
    """
    return (await fetch_settings(questions, node)).get("aclEnable", "false").strip() == "true"


async def fetch_accounts(questions: Questions, node: Node) -> a.AccessAccounts:
    """The accounts of one broker that has them, with their secrets.

    Raises:
        Unanswered: it does not answer.
    """

    async def read() -> a.AccessAccounts:
        answer = await questions.fetch(
            node, C.GET_BROKER_CLUSTER_ACL_CONFIG, body(a.AccessAccounts), what="accounts are",
            absent=(ResponseCode.REQUEST_CODE_NOT_SUPPORTED,),
        )  # fmt: skip
        if answer is None:
            raise ClientError(f"{node.address}: the broker does not report its accounts, which 4.9.8 can no longer do")
        return answer

    return await questions.attempt(node, "accounts are", read)


async def fetch_files(questions: Questions, node: Node) -> Mapping[str, DataVersion]:
    """The data versions of a broker's files with accounts, by path.

    Raises:
        Unanswered: it does not answer.
    """

    async def read() -> Mapping[str, DataVersion]:
        answer = await questions.fetch_header(node, C.GET_BROKER_CLUSTER_ACL_INFO, a.AccessVersion, what="files are")
        try:
            table = loads((answer.all_acl_file_version or "{}").encode(), BODY)
            if not isinstance(table, dict):
                raise BadText(0, "not an object")
            return {str(path): from_json(DataVersion, version) for path, version in table.items()}
        except BadText as err:
            raise BadAnswer(f"{node.address}: not an answer to the request: {err}") from None

    return await questions.attempt(node, "files are", read)


def list_accounts(target: Target, wanted: Callable[[str], bool], warn: Warn) -> list[AccountRow]:
    """The accounts of every broker, by access key and broker.

    Args:
        wanted: by access key.
        warn: called with each reason why the answer is incomplete.

    Raises:
        ClientError, RemotingError: no broker answers, or has such access control.
    """
    return [
        AccountRow(
            accessKey=account.access_key,
            admin=account.admin,
            defaultTopicPerm=account.default_topic_perm,
            defaultGroupPerm=account.default_group_perm,
            topicPerms=list(account.topic_perms or ()),
            groupPerms=list(account.group_perms or ()),
            whiteRemoteAddress=account.white_remote_address or None,
            brokerName=name,
        )
        for name, account in sorted(
            (
                (node.name, account)
                for node, table in _ask(target, warn, fetch_accounts).items()
                for account in table.plain_access_configs or ()
                if wanted(account.access_key)
            ),
            key=lambda pair: (pair[1].access_key, pair[0]),
        )
    ]


def list_addresses(target: Target, warn: Warn) -> list[AddressRow]:
    """The addresses of every broker that need no account.

    Raises:
        ClientError, RemotingError: as :func:`list_accounts`.
    """
    rows = [
        AddressRow(address=address, brokerName=node.name)
        for node, table in _ask(target, warn, fetch_accounts).items()
        for address in table.global_white_addrs or ()
    ]
    return sorted(rows, key=lambda row: (row.address, row.brokerName))


def list_files(target: Target, warn: Warn) -> list[AccessFileRow]:
    """The files with accounts of every broker, by broker and path.

    Raises:
        ClientError, RemotingError: as :func:`list_accounts`.
    """
    rows = [
        AccessFileRow(file=path, counter=version.counter, timestamp=version.timestamp, brokerName=node.name)
        for node, table in _ask(target, warn, fetch_files).items()
        for path, version in table.items()
    ]
    return sorted(rows, key=lambda row: (row.brokerName, row.file))


def _ask(target: Target, warn: Warn, fetch: Callable[[Questions, Node], Awaitable[T]]) -> dict[Node, T]:
    async def fetch_if_any(questions: Questions, node: Node) -> T | None:
        return await fetch(questions, node) if await has_plain_access(questions, node) else None

    async def work(questions: Questions) -> dict[Node, T]:
        masters = await questions.masters()
        answers = await questions.tables(masters, lambda node: fetch_if_any(questions, node))
        without = sorted(node.name for node, answer in answers.items() if answer is None)
        if len(without) == len(answers):
            what = "plain access control, of 4.9 (aclEnable); user list and acl list show that of 5.x"
            raise questions.none_has(what)
        if without:
            warn(f"{', '.join(without)}: no plain access control (aclEnable)")
        return {node: answer for node, answer in answers.items() if answer is not None}

    return ask(target, warn, work)
