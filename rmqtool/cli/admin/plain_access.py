"""The commands for accounts of live brokers of 4.9."""

from typing import Annotated

import typer

from rmqtool.cli.framework.app import command
from rmqtool.cli.framework.changing import change_brokers, list_rows, need_target
from rmqtool.cli.framework.choice import matches
from rmqtool.cli.framework.options import Output, OutputOption, TargetArgument, option
from rmqtool.cli.framework.planning import CHANGE_BROKERS, BrokerChange
from rmqtool.errors import BadValue

AccessKey = Annotated[str, typer.Argument(metavar="ACCESSKEY", help="Access key of the account.")]
_PERMS = ("DENY", "PUB", "SUB", "PUB|SUB", "SUB|PUB")


@command("plain-acl list", "rmqtool plain-acl list @prod")
def plain_acl_list(
    store: TargetArgument,
    access_key: Annotated[
        str | None, typer.Argument(metavar="[ACCESSKEY]", help="Only this account; * and ? match.")
    ] = None,
    output: OutputOption = Output.text,
) -> int:
    """List the accounts of every broker of 4.9, without their secrets.

    Exit code 1: a broker does not answer, or there is no such account.
    """
    from rmqtool.admin.live.plain_access import AccountRow, list_accounts

    globs = [access_key] if access_key else None
    return list_rows(
        store, AccountRow, lambda target, warn: list_accounts(target, lambda name: matches(name, globs), warn), output,
        spare=("whiteRemoteAddress",), access_key=access_key,
    )  # fmt: skip


@command("plain-acl set", "rmqtool plain-acl set @prod billing-app --topic-perm 'Orders=PUB|SUB' --dry-run")
def plain_acl_set(
    store: TargetArgument,
    access_key: AccessKey,
    secret_file: Annotated[
        str | None, option("--secret-file", "FILE", "The secret key, the first line of this file.")
    ] = None,
    admin: Annotated[bool | None, typer.Option("--admin/--no-admin", help="Whether it may do everything.")] = None,
    topic_perm: Annotated[
        list[str] | None,
        option("--topic-perm", "PERM", "TOPIC=PUB, SUB, PUB|SUB or DENY; TOPIC= removes the entry; may be repeated."),
    ] = None,
    group_perm: Annotated[
        list[str] | None, option("--group-perm", "PERM", "The same for a group: GROUP=SUB or DENY.")
    ] = None,
    default_topic_perm: Annotated[str | None, option("--default-topic-perm", "PERM", "For all other topics.")] = None,
    default_group_perm: Annotated[str | None, option("--default-group-perm", "PERM", "For all other groups.")] = None,
    white_address: Annotated[
        str | None, option("--white-address", "ADDRESS", "Where no signature is needed: 10.0.0.*; empty for nowhere.")
    ] = None,
    options: BrokerChange = CHANGE_BROKERS,
) -> int:
    """Create an account on every broker of 4.9, or change what is given, after showing the plan.

    The secret is never given on the command line. It is kept in the journal, a file that only you can read. The account
    that signs the requests themselves cannot lose its rights. Exit codes as for topic create.
    """
    from rmqtool.cli.framework.secrets import read_secret

    settings: dict[str, object] = {}
    if secret_file is not None:
        settings["secretKey"] = read_secret(secret_file, "a file with a secret")
    if admin is not None:
        settings["admin"] = admin
    for name, perm in (("defaultTopicPerm", default_topic_perm), ("defaultGroupPerm", default_group_perm)):
        if perm is not None:
            settings[name] = _perm(perm)
    if white_address is not None:
        settings["whiteRemoteAddress"] = white_address or None
    perms = {"topicPerms": _parse_perms(topic_perm), "groupPerms": _parse_perms(group_perm)}
    if not settings and not any(perms.values()):
        raise BadValue("give what is to be set, such as --topic-perm")
    from rmqtool.admin.changes.plain_access_plans import plan_account

    return change_brokers(
        store, lambda questions, where: plan_account(questions, where, access_key, settings, perms),
        command="plain-acl set", options=options,
    )  # fmt: skip


def _perm(text: str) -> str:
    perm = text.upper()
    if perm not in _PERMS:
        raise BadValue(f"{text}: give {', '.join(_PERMS[:-1])}")
    return perm


def _parse_perms(rows: list[str] | None) -> dict[str, str]:
    perms: dict[str, str] = {}
    for row in rows or ():
        name, sign, perm = row.partition("=")
        if not name or not sign or "," in row:
            raise BadValue(f"{row}: give NAME=PERM")
        perms[name] = _perm(perm) if perm else ""
    return perms


@command("plain-acl delete", "rmqtool plain-acl delete @prod billing-app --dry-run")
def plain_acl_delete(store: TargetArgument, access_key: AccessKey, options: BrokerChange = CHANGE_BROKERS) -> int:
    """Delete an account on every broker of 4.9 that has it, after showing the plan.

    Exit codes as for topic create.
    """
    from rmqtool.admin.changes.plain_access_plans import plan_account_deletion

    return change_brokers(
        store, lambda questions, where: plan_account_deletion(questions, where, access_key),
        command="plain-acl delete", options=options,
    )  # fmt: skip


@command("plain-acl addresses", "rmqtool plain-acl addresses @prod")
def plain_acl_addresses(store: TargetArgument, output: OutputOption = Output.text) -> int:
    """List the addresses whose clients need no account on brokers of 4.9.

    Exit code 1: a broker does not answer, or there is none.
    """
    from rmqtool.admin.live.plain_access import AddressRow, list_addresses

    return list_rows(store, AddressRow, list_addresses, output)


@command("plain-acl set-addresses", "rmqtool plain-acl set-addresses @prod '10.0.0.*' --dry-run")
def plain_acl_set_addresses(
    store: TargetArgument,
    addresses: Annotated[
        list[str] | None, typer.Argument(metavar="ADDRESS", help="All of them, as in 10.0.0.*; none: nobody.")
    ] = None,
    options: BrokerChange = CHANGE_BROKERS,
) -> int:
    """Set the addresses whose clients need no account on brokers of 4.9, after showing the plan.

    Refused for a broker that has accounts in several files. Exit codes as for topic create.
    """
    from rmqtool.admin.changes.plain_access_plans import plan_addresses

    if wrong := [address for address in addresses or () if "," in address or not address]:
        raise BadValue(f"{wrong[0]!r}: give one address for each argument")
    return change_brokers(
        store, lambda questions, where: plan_addresses(questions, where, addresses or []),
        command="plain-acl set-addresses", options=options,
    )  # fmt: skip


@command("plain-acl files", "rmqtool plain-acl files @prod")
def plain_acl_files(store: TargetArgument, output: OutputOption = Output.text) -> int:
    """List the files with accounts of every broker of 4.9, how often each was changed, and when last.

    Exit code 1: a broker does not answer.
    """
    from rmqtool.cli.render.rows import Warnings, write_rows

    target, warn = need_target(store), Warnings()
    from rmqtool.admin.live.plain_access import AccessFileRow, list_files

    write_rows(output.value, AccessFileRow, list_files(target, warn))
    return warn.tell()
