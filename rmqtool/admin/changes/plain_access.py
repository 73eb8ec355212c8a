"""Accounts of brokers of 4.9, and addresses that need none."""

from collections.abc import Mapping, Sequence
from typing import Any

from formats.remoting import admin as a
from formats.remoting.codes import RequestCode as C
from rmqtool.admin.changes.access import HIDDEN
from rmqtool.admin.changes.change import Name, Value, ValueChange, ValueKind
from rmqtool.admin.live.plain_access import fetch_accounts
from rmqtool.admin.live.questions import Node, Questions

_LISTS = ("topicPerms", "groupPerms")
_LASTING = ("defaultTopicPerm", "defaultGroupPerm", *_LISTS)  # what an update can replace, but not remove


def account_value(account: a.PlainAccount) -> dict[str, Value]:
    """An account by the names of its file, without its access key."""
    return {
        "secretKey": account.secret_key,
        "whiteRemoteAddress": account.white_remote_address or None,
        "admin": account.admin,
        "defaultTopicPerm": account.default_topic_perm,
        "defaultGroupPerm": account.default_group_perm,
        "topicPerms": list(account.topic_perms or ()),
        "groupPerms": list(account.group_perms or ()),
    }


class Accounts(ValueKind):
    """Accounts; the name is the access key. One that loses a permission of a kind altogether is removed and created
    again, since a broker has no request for that.
    """

    name, fields = "account", True

    async def read(self, questions: Questions, node: Node, names: Sequence[Name]) -> Mapping[Name, Value]:
        answer = await fetch_accounts(questions, node)
        accounts = {account.access_key: account for account in reversed(answer.plain_access_configs or [])}
        return {name: account_value(accounts[name[0]]) for name in names if name[0] in accounts}

    async def write(self, questions: Questions, node: Node, change: ValueChange) -> None:
        (key,) = change.place.name
        after: dict[str, Any] | None = change.after
        before: dict[str, Any] = change.before or {}
        if after is None or _needs_removal(before, after):
            await questions.send(node, C.DELETE_ACL_CONFIG, a.AccessKey(access_key=key))
        if after is None:
            return
        header = a.AccessAccount(
            access_key=key,
            secret_key=after["secretKey"],
            white_remote_address=after["whiteRemoteAddress"] or ("" if before.get("whiteRemoteAddress") else None),
            admin=after["admin"],
            default_topic_perm=after["defaultTopicPerm"],
            default_group_perm=after["defaultGroupPerm"],
            topic_perms=",".join(after["topicPerms"]) or None,
            group_perms=",".join(after["groupPerms"]) or None,
        )
        await questions.send(node, C.UPDATE_AND_CREATE_ACL_CONFIG, header)

    @classmethod
    def is_halfway(cls, change: ValueChange, now: Value) -> bool:
        return now is None and _needs_removal(change.before or {}, change.after or {})

    @classmethod
    def tell_order(cls, change: ValueChange) -> str | None:
        if change.after is not None:
            return "accounts that are put back are at the end of the broker's file; brokers do not go by their order"
        return None

    @classmethod
    def show(cls, value: Value) -> Value:
        return value and {**value, "secretKey": value.get("secretKey") and HIDDEN}


def _needs_removal(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """Whether an account loses what an update can only replace."""
    return any(before.get(member) and not after.get(member) for member in _LASTING)


class WhiteAddresses(ValueKind):
    """Addresses that need no account, of a broker with one file of accounts; the name is ``global``."""

    name = "white-addresses"

    async def read(self, questions: Questions, node: Node, names: Sequence[Name]) -> Mapping[Name, Value]:
        answer = await fetch_accounts(questions, node)
        return {name: list(answer.global_white_addrs or ()) for name in names}

    async def write(self, questions: Questions, node: Node, change: ValueChange) -> None:
        header = a.SetWhiteAddresses(global_white_addrs=",".join(change.after))
        await questions.send(node, C.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG, header)

    @classmethod
    def show(cls, value: Value) -> Value:
        return value if value is None else ", ".join(value)
