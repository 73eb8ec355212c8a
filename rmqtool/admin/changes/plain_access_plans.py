"""Plans of changes of accounts of brokers of 4.9."""

from collections.abc import Mapping, Sequence

from rmqtool.admin.changes.change import Place, Value, ValueChange
from rmqtool.admin.changes.plain_access import Accounts, WhiteAddresses
from rmqtool.admin.changes.plans import Where
from rmqtool.admin.changes.run import Plan, Servers, need_values
from rmqtool.admin.live.plain_access import fetch_files, has_plain_access
from rmqtool.admin.live.questions import Node, Questions, Unanswered, client_options
from rmqtool.client.cluster.errors import ClientError
from rmqtool.errors import BadValue, Refused

_SHORTEST = 7  # characters of both keys, as brokers have it
_NEW: dict[str, Value] = {
    "secretKey": None, "whiteRemoteAddress": None, "admin": False, "defaultTopicPerm": None, "defaultGroupPerm": None,
    "topicPerms": [], "groupPerms": [],
}  # fmt: skip


async def plan_account(
    questions: Questions,
    where: Where,
    key: str,
    settings: Mapping[str, Value],
    perms: Mapping[str, Mapping[str, str]],
) -> Plan:
    """Create an account, or change one.

    Args:
        settings: members of the account that are given, but for lists.
        perms: for ``topicPerms`` and ``groupPerms`` the permission by topic or group; an empty one removes the entry.

    Raises:
        BadValue: a key is too short, or a new account has no secret.
        Refused: a broker has no such access control, or it is the account that signs these requests.
        ClientError, RemotingError: a server does not answer.
    """
    if len(key) < _SHORTEST or len(str(settings.get("secretKey", " " * _SHORTEST))) < _SHORTEST:
        raise BadValue(f"access key and secret key need at least {_SHORTEST} characters")
    servers, masters = await _brokers(questions, where)
    values = await need_values(questions, servers, [servers.place(Accounts, node, key) for node in masters])
    changes = []
    for place, before in values.items():
        if before is None and "secretKey" not in settings:
            raise BadValue(f"broker {place.server} has no account {key}: a new one needs a secret")
        after = {**(_NEW if before is None else before), **settings}
        for member, wanted in perms.items():
            after[member] = _merge(after[member], wanted)
        changes.append(ValueChange(place=place, before=before, after=after))
    harmful = [
        change
        for change in changes
        if change.before is not None
        and (change.after["secretKey"] != change.before["secretKey"] or change.before["admin"] > change.after["admin"])
    ]
    if harmful:
        _keep_own(where, key)
    return Plan(target=where.target.text, command="plain-acl set", changes=tuple(changes), warnings=_warn(changes))


def _merge(rows: Sequence[str], wanted: Mapping[str, str]) -> list[str]:
    """Permissions like ``Orders=PUB``, with others in their place, or none."""
    old = {row.partition("=")[0].strip(): row for row in rows}
    new = {name: f"{name}={perm}" if perm else "" for name, perm in wanted.items()}
    return [row for row in ({**old, **new}).values() if row]


def _warn(changes: Sequence[ValueChange]) -> tuple[str, ...]:
    names = [
        change.place.server for change in changes if change.after is not None and change.after["whiteRemoteAddress"]
    ]
    return (f"{', '.join(names)}: from its address the account needs no signature",) if names else ()


async def plan_account_deletion(questions: Questions, where: Where, key: str) -> Plan:
    """Delete an account on every broker that has it.

    Raises:
        Refused: no broker has it, or it is the account that signs these requests.
        ClientError, RemotingError: a server does not answer.
    """
    _keep_own(where, key)
    servers, masters = await _brokers(questions, where)
    values = await need_values(questions, servers, [servers.place(Accounts, node, key) for node in masters])
    changes = tuple(ValueChange(place=place, before=value, after=None) for place, value in values.items() if value)
    if not changes:
        raise Refused(f"account {key}: no broker has it")
    return Plan(target=where.target.text, command="plain-acl delete", changes=changes)


async def plan_addresses(questions: Questions, where: Where, addresses: Sequence[str]) -> Plan:
    """Set the addresses that need no account.

    Raises:
        Refused: a broker has no such access control, or several files with accounts.
        ClientError, RemotingError: a server does not answer.
    """
    servers, masters = await _brokers(questions, where)
    try:
        files = {node: await fetch_files(questions, node) for node in masters}
    except Unanswered:
        raise ClientError(f"{'; '.join(questions.reasons())}: nothing was changed") from None
    for node, table in files.items():
        if len(table) > 1:
            raise Refused(
                f"broker {node.name} has accounts in {', '.join(sorted(table))}, and does not report which of them has "
                "which address; nothing was changed"
            )
    places: list[Place] = [servers.place(WhiteAddresses, node, "global") for node in masters]
    values = await need_values(questions, servers, places)
    changes = tuple(ValueChange(place=place, before=value, after=list(addresses)) for place, value in values.items())
    warnings = ("clients at these addresses may do everything",) if addresses else ()
    return Plan(target=where.target.text, command="plain-acl set-addresses", changes=changes, warnings=warnings)


async def _brokers(questions: Questions, where: Where) -> tuple[Servers, list[Node]]:
    """The masters, all of which have such access control.

    Raises:
        Refused: one has not.
        ClientError, RemotingError: one does not answer.
    """
    masters = await where.masters(questions)
    try:
        without = [node.name for node in masters if not await has_plain_access(questions, node)]
    except Unanswered:
        raise ClientError(f"{'; '.join(questions.reasons())}: nothing was changed") from None
    if without:
        names = ", ".join(without)
        raise Refused(f"broker {names}: no plain access control, of 4.9 (aclEnable); nothing was changed")
    return await Servers.of(questions), masters


def _keep_own(where: Where, key: str) -> None:
    """Refuse to change the account that signs these requests: what was done could not be read back or undone.

    Raises:
        Refused: it is that account.
    """
    own = client_options(where.target).credentials
    if own is not None and own.access_key == key:
        raise Refused(f"account {key} signs these requests: use another one to change it; nothing was changed")
