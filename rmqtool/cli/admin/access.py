"""The commands for users and rights of live brokers: access control 2.0, of 5.x."""

from collections.abc import Mapping
from typing import Annotated

import typer

from rmqtool.cli.framework.app import command
from rmqtool.cli.framework.changing import change_brokers, list_rows
from rmqtool.cli.framework.choice import matches
from rmqtool.cli.framework.options import Output, OutputOption, TargetArgument, option
from rmqtool.cli.framework.planning import CHANGE_BROKERS, BrokerChange
from rmqtool.errors import BadValue

UserName = Annotated[str, typer.Argument(metavar="USER", help="Name of the user.")]
Subject = Annotated[str, typer.Argument(metavar="SUBJECT", help="Who: User:NAME.")]
PasswordOption = Annotated[str | None, option("--password-file", "FILE", "The password, the first line of this file.")]
SuperOption = Annotated[bool | None, typer.Option("--super/--no-super", help="Whether the user may do everything.")]
ResourceOption = Annotated[
    list[str] | None, option("--resource", "RESOURCE", "Topic:NAME, Group:NAME or Cluster:NAME; may be repeated.")
]
_ACTIONS = {name.lower(): name for name in ("All", "Pub", "Sub", "Create", "Update", "Delete", "Get", "List")}


@command("user list", "rmqtool user list @prod")
def user_list(
    store: TargetArgument,
    user: Annotated[str | None, typer.Argument(metavar="[USER]", help="Only this user; * and ? match.")] = None,
    output: OutputOption = Output.text,
) -> int:
    """List the users of every broker.

    Exit code 1: a broker does not answer, or there is no such user.
    """
    from rmqtool.admin.live.access import UserRow, list_users

    globs = [user] if user else None
    return list_rows(
        store, UserRow, lambda target, warn: list_users(target, warn, lambda name: matches(name, globs)), output,
        user=user,
    )  # fmt: skip


@command("user create", "rmqtool user create @prod billing --password-file password.txt --dry-run")
def user_create(
    store: TargetArgument,
    user: UserName,
    password_file: PasswordOption = None,
    super_user: SuperOption = None,
    options: BrokerChange = CHANGE_BROKERS,
) -> int:
    """Create a user on every broker of a cluster, after showing the plan.

    The password is never given on the command line. It is kept in the journal, a file that only you can read. Exit
    codes as for topic create.
    """
    if password_file is None:
        raise BadValue("give --password-file")
    settings = _settings(password_file, super_user, None)
    return _change_user(store, user, settings, options, create=True)


@command("user update", "rmqtool user update @prod billing --disable --dry-run")
def user_update(
    store: TargetArgument,
    user: UserName,
    password_file: PasswordOption = None,
    super_user: SuperOption = None,
    enable: Annotated[bool | None, typer.Option("--enable/--disable", help="Whether the user may log in.")] = None,
    options: BrokerChange = CHANGE_BROKERS,
) -> int:
    """Change a user on every broker that has it, after showing the plan.

    Settings that are not given stay as they are. Exit codes as for topic create.
    """
    settings = _settings(password_file, super_user, enable)
    if not settings:
        raise BadValue("give what is to change: --password-file, --super, --enable or --disable")
    return _change_user(store, user, settings, options, create=False)


@command("user delete", "rmqtool user delete @prod billing --dry-run")
def user_delete(store: TargetArgument, user: UserName, options: BrokerChange = CHANGE_BROKERS) -> int:
    """Delete a user on every broker that has it, after showing the plan.

    Brokers delete its access rules with it; undo restores both. Exit codes as for topic create.
    """
    return _change_user(store, user, None, options, create=False)


def _settings(password_file: str | None, super_user: bool | None, enable: bool | None) -> dict[str, str]:
    from rmqtool.cli.framework.secrets import read_secret

    values: dict[str, str] = {}
    if password_file is not None:
        values["password"] = read_secret(password_file, "a file with a password")
    if super_user is not None:
        values["userType"] = "Super" if super_user else "Normal"
    if enable is not None:
        values["userStatus"] = "enable" if enable else "disable"
    return values


def _change_user(
    store: str,
    user: str,
    settings: dict[str, str] | None,
    options: BrokerChange,
    *,
    create: bool,
) -> int:
    from rmqtool.admin.changes.plans import plan_user

    return change_brokers(
        store, lambda questions, where: plan_user(questions, where, user, settings, create=create),
        command=f"user {'delete' if settings is None else 'create' if create else 'update'}", options=options,
    )  # fmt: skip


# -- rules ------------------------------------------------------------------------------------------------------------


@command("acl list", "rmqtool acl list @prod User:billing")
def acl_list(
    store: TargetArgument,
    subject: Annotated[
        str | None, typer.Argument(metavar="[SUBJECT]", help="Only this subject; * and ? match.")
    ] = None,
    output: OutputOption = Output.text,
) -> int:
    """List the access rules of every broker.

    Exit code 1: a broker does not answer, or there is no such subject.
    """
    from rmqtool.admin.live.access import RuleRow, list_rules

    globs = [subject] if subject else None
    return list_rows(
        store, RuleRow, lambda target, warn: list_rules(target, warn, lambda name: matches(name, globs)), output,
        subject=subject,
    )  # fmt: skip


@command("acl set", "rmqtool acl set @prod User:billing --resource Topic:Orders --action Sub --dry-run")
def acl_set(
    store: TargetArgument,
    subject: Subject,
    resource: ResourceOption = None,
    action: Annotated[
        list[str] | None, option("--action", "ACTION", "Pub, Sub, Create, Update, Delete, Get, List or All.")
    ] = None,
    source_ip: Annotated[
        list[str] | None, option("--source-ip", "ADDRESS", "Only from this address; may be repeated.")
    ] = None,
    deny: Annotated[bool, typer.Option("--deny", help="Deny instead of allow.")] = False,
    default: Annotated[
        bool, typer.Option("--default", help="As the default, where no other rule of the subject applies.")
    ] = False,
    options: BrokerChange = CHANGE_BROKERS,
) -> int:
    """Allow or deny a subject the use of resources on every broker, after showing the plan.

    Rules for other resources stay as they are. Exit codes as for topic create.
    """
    if not resource or not action:
        raise BadValue("give --resource and --action")
    if unknown := [name for name in action if name.lower() not in _ACTIONS]:
        raise BadValue(f"--action {unknown[0]}: give {', '.join(_ACTIONS.values())}")
    rule = {
        "actions": sorted({_ACTIONS[name.lower()] for name in action}),
        "sourceIps": sorted(source_ip or ()),
        "decision": "Deny" if deny else "Allow",
    }
    rules = {f"{'Default' if default else 'Custom'} {name}": rule for name in resource}
    return _change_rules(store, subject, rules, (), options)


@command("acl delete", "rmqtool acl delete @prod User:billing --resource Topic:Orders --dry-run")
def acl_delete(
    store: TargetArgument, subject: Subject, resource: ResourceOption = None, options: BrokerChange = CHANGE_BROKERS
) -> int:
    """Delete the rules of a subject, all of them or those for some resources, on every broker, after showing the plan.

    Exit codes as for topic create.
    """
    return _change_rules(store, subject, None, tuple(resource or ()), options)


def _change_rules(
    store: str, subject: str, rules: Mapping[str, object] | None, resources: tuple[str, ...], options: BrokerChange
) -> int:
    if ":" not in subject:
        raise BadValue(f"{subject}: give User:NAME")
    from rmqtool.admin.changes.plans import plan_rules

    return change_brokers(
        store, lambda questions, where: plan_rules(questions, where, subject, rules, resources),
        command=f"acl {'delete' if rules is None else 'set'}", options=options,
    )  # fmt: skip
