"""Users and rules of access control 2.0 (5.x)."""

from collections.abc import Mapping, Sequence
from typing import Any

from formats.errors import BadText
from formats.fastjson.dialects import BODY
from formats.fastjson.read import loads
from formats.fastjson.write import dumps
from formats.remoting import admin as a
from formats.remoting.codes import RequestCode as C
from rmqtool.admin.changes.change import Name, Value, ValueChange, ValueKind
from rmqtool.admin.live.access import rules_of
from rmqtool.admin.live.questions import Node, Questions

HIDDEN = "***"
# answers of a broker without rules, and of one without the user, whose rules it deletes with it
_NO_RULES = ("authorizationMetadataProvider is not configured", "subject is not exist")


class Users(ValueKind):
    """Users; the name is the user's."""

    name, fields = "user", True

    async def read(self, questions: Questions, node: Node, names: Sequence[Name]) -> Mapping[Name, Value]:
        async def fetch(name: Name) -> dict[str, Value] | None:
            header = a.User(username=name[0])
            account = await questions.fetch(node, C.AUTH_GET_USER, _read_object, header, what="users are")
            members = ("password", "userType", "userStatus")
            return {member: account.get(member) for member in members} if account else None

        users = await questions.need(questions.collect(names, fetch), names)
        return {name: user for name, user in users.items() if user is not None}

    async def write(self, questions: Questions, node: Node, change: ValueChange) -> None:
        (user,) = change.place.name
        if change.after is None:
            await questions.send(node, C.AUTH_DELETE_USER, a.User(username=user))
            return
        code = C.AUTH_CREATE_USER if change.before is None else C.AUTH_UPDATE_USER
        await questions.send(node, code, a.User(username=user), dumps({"username": user, **change.after}, BODY))

    @classmethod
    def show(cls, value: Value) -> Value:
        return value and {**value, "password": value.get("password") and HIDDEN}


class Rules(ValueKind):
    """What a subject may do; the name is the subject, and the value has a member for each policy and resource."""

    name, fields = "acl", True

    async def read(self, questions: Questions, node: Node, names: Sequence[Name]) -> Mapping[Name, Value]:
        async def fetch(name: Name) -> dict[str, Value] | None:
            header = a.Subject(subject=name[0])
            acl = await questions.fetch(node, C.AUTH_GET_ACL, _read_object, header, what="rules are", absent=_NO_RULES)
            return rules_of(acl) if acl else None

        rules = await questions.need(questions.collect(names, fetch), names)
        return {name: value for name, value in rules.items() if value}

    async def write(self, questions: Questions, node: Node, change: ValueChange) -> None:
        (subject,) = change.place.name
        before, after = change.before or {}, change.after or {}
        if not after:
            await questions.send(node, C.AUTH_DELETE_ACL, a.Subject(subject=subject))
            return
        for policy, resource in (member.split(" ", 1) for member in sorted(before.keys() - after.keys())):
            header = a.Subject(subject=subject, policy_type=policy, resource=resource)
            await questions.send(node, C.AUTH_DELETE_ACL, header)
        policies: dict[str, list[Value]] = {}
        for member, rule in after.items():
            policy, resource = member.split(" ", 1)
            policies.setdefault(policy, []).append({"resource": resource, **rule})
        info: Any = {
            "subject": subject,
            "policies": [{"policyType": policy, "entries": entries} for policy, entries in policies.items()],
        }
        code = C.AUTH_UPDATE_ACL if before else C.AUTH_CREATE_ACL
        await questions.send(node, code, a.Subject(subject=subject), dumps(info, BODY))

    @classmethod
    def tell_order(cls, change: ValueChange) -> str | None:
        before, after = change.before or {}, change.after or {}
        if before and after.keys() - before.keys():
            return "rules that come back are at the end of the subject's list; brokers do not go by their order"
        return None


def _read_object(data: bytes) -> dict[str, Any] | None:
    """A JSON object; None if the body has none."""
    if not data:
        return None
    accounts = loads(data, BODY, cycles=False)
    if not isinstance(accounts, dict):
        raise BadText(0, "not an object")
    return {str(name): value for name, value in accounts.items()}
