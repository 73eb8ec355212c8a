"""Users of live brokers, and what they may do: access control 2.0, of 5.x."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from formats.errors import BadText
from formats.fastjson.dialects import BODY
from formats.fastjson.read import loads
from formats.remoting import admin as a
from formats.remoting.codes import RequestCode as C
from rmqtool.admin.live.questions import Node, Questions, Warn, ask
from rmqtool.admin.target import Target
from rmqtool.client.cluster.errors import ClientError
from rmqtool.contract import PlainRow

# answers of brokers without it: of 5.x to a list of users and to one of rules, and of 4.9
_OFF = ("An system error occurred", "MetadataProvider is not configured", "REQUEST_CODE_NOT_SUPPORTED")
Row = TypeVar("Row")


@dataclass(frozen=True, slots=True, kw_only=True)
class UserRow(PlainRow):
    """A user of one broker. Passwords are not shown."""

    user: str
    userType: str | None
    userStatus: str | None
    brokerName: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleRow(PlainRow):
    """What a subject may do with a resource on one broker."""

    subject: str
    policy: str
    resource: str
    actions: list[str]
    sourceIps: list[str]
    decision: str
    brokerName: str


def list_users(target: Target, warn: Warn, wanted: Callable[[str], bool]) -> list[UserRow]:
    """The users of every broker, by name and broker.

    Args:
        warn: called with each reason why the answer is incomplete.
    """

    async def fetch(questions: Questions, node: Node) -> list[UserRow]:
        users = await questions.fetch(node, C.AUTH_LIST_USER, _read_objects, a.Filter(), what="its users are")
        return [
            UserRow(
                user=str(user.get("username")), userType=user.get("userType"), userStatus=user.get("userStatus"),
                brokerName=node.name,
            )
            for user in users or ()
        ]  # fmt: skip

    rows = _ask_masters(target, warn, fetch)
    return sorted((row for row in rows if wanted(row.user)), key=lambda row: (row.user, row.brokerName))


def list_rules(target: Target, warn: Warn, wanted: Callable[[str], bool]) -> list[RuleRow]:
    """What each subject may do, by subject, resource and broker.

    Args:
        warn: called with each reason why the answer is incomplete.
    """

    async def fetch(questions: Questions, node: Node) -> list[RuleRow]:
        subjects = await questions.fetch(node, C.AUTH_LIST_ACL, _read_objects, a.Filter(), what="its rules are")
        return [
            RuleRow(
                subject=str(subject.get("subject")), policy=name.partition(" ")[0], resource=name.partition(" ")[2],
                brokerName=node.name, **in_order(rule),
            )
            for subject in subjects or ()
            for name, rule in rules_of(subject).items()
        ]  # fmt: skip

    rows = _ask_masters(target, warn, fetch)
    return sorted(
        (row for row in rows if wanted(row.subject)), key=lambda row: (row.subject, row.resource, row.brokerName)
    )


def _ask_masters(target: Target, warn: Warn, fetch: Callable[[Questions, Node], Awaitable[list[Row]]]) -> list[Row]:
    """The rows that ``fetch`` gets from each master, in any order."""

    async def work(questions: Questions) -> list[Row]:
        masters = await questions.masters()
        tables = await questions.collect(masters, lambda node: fetch(questions, node))
        if not tables:
            reasons = questions.reasons()
            if all(any(text in reason for text in _OFF) for reason in reasons):
                raise ClientError(
                    f"{target.text}: no broker has access control of 5.x (authenticationMetadataProvider and "
                    "authorizationMetadataProvider in its settings); plain-acl list shows that of 4.9"
                )
            raise ClientError(f"{target.text}: no broker answers: {'; '.join(reasons)}")
        return [row for table in tables.values() for row in table]

    return ask(target, warn, work)


def rules_of(acl: Mapping[str, Any]) -> dict[str, Any]:
    """The rules of a subject by policy and resource, in the order in which brokers report them (body.AclInfo).

    Raises:
        BadText: they are something else.
    """
    try:
        return {
            f"{policy['policyType']} {entry['resource']}": {
                "actions": _texts(entry["actions"]),
                "sourceIps": _texts(entry.get("sourceIps") or []),
                "decision": entry["decision"],
            }
            for policy in acl.get("policies") or ()
            for entry in policy.get("entries") or ()
        }
    except (KeyError, TypeError, AttributeError) as err:
        raise BadText(0, f"not the rules of a subject: {err}") from None


def _texts(items: list[Any]) -> list[str]:
    if not isinstance(items, list) or not all(isinstance(item, str) for item in items):
        raise TypeError(f"{items!r} are no texts")
    return items


def in_order(rule: Mapping[str, Any]) -> dict[str, Any]:
    """A rule with sorted actions and addresses, which mean the same in any order."""
    return {name: sorted(value) if isinstance(value, list) else value for name, value in rule.items()}


def _read_objects(data: bytes) -> list[dict[str, Any]]:
    """A list of objects, empty where there is none."""
    items = loads(data, BODY, cycles=False) if data else []
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise BadText(0, "not a list of objects")
    return [{str(name): value for name, value in item.items()} for item in items if isinstance(item, dict)]
