"""The commands for clients of a live cluster: producers, queues that consumers hold, stacks, one message for one."""

import sys
from typing import Annotated

import typer

from rmqtool.cli.framework.app import command
from rmqtool.cli.framework.changing import list_rows, need_target
from rmqtool.cli.framework.options import GroupOption, LimitOption, Output, OutputOption, TargetArgument, option
from rmqtool.cli.framework.planning import ASK, Consent

GroupName = Annotated[str, typer.Argument(metavar="GROUP", help="Consumer group.")]
ClientOption = Annotated[str | None, option("--client", "ID", "Only this client; * and ? match.")]


@command("client producers", "rmqtool client producers @prod --group billing")
def client_producers(
    store: TargetArgument, group: GroupOption = None, limit: LimitOption = None, output: OutputOption = Output.text
) -> int:
    """List the producers that are online: group, id, address, language, newest heartbeat.

    Exit code 1: a broker does not answer, or no producer matches.
    """
    from rmqtool.admin.live.clients import ProducerClient, list_producers
    from rmqtool.cli.framework.choice import matches

    return list_rows(
        store, ProducerClient, lambda target, warn: list_producers(target, warn, lambda name: matches(name, group)),
        output, limit=limit, spare=("version", "brokers", "language"), group=group,
    )  # fmt: skip


@command("client show", "rmqtool client show @prod billing")
def client_show(
    store: TargetArgument,
    consumer_group: GroupName,
    stuck: Annotated[bool, typer.Option("--stuck", help="Only queues that stand still.")] = False,
    limit: LimitOption = None,
    output: OutputOption = Output.text,
) -> int:
    """Show which client of a group holds which queue, and why a queue stands still.

    Clients report what they hold. States: no-client: none holds the queue; shared: several do; dropped: its client has
    given it up; unlocked: an orderly consumer has no lock on it; full: its client holds as many messages as it may;
    busy: it holds messages and has finished none for a minute (client stack shows what it does); not-pulled: nothing
    was pulled for two minutes; unknown: its client does not report; ok: none of these.

    Exit code 1: a queue stands still, a broker or client does not answer, or nothing matches.
    """
    from rmqtool.cli.framework.choice import first, no_match
    from rmqtool.cli.render.rows import Warnings, write_rows

    target, warn = need_target(store), Warnings()
    from rmqtool.admin.live.clients import OK, HeldQueue, list_held_queues

    rows = list_held_queues(target, warn, consumer_group)
    shown = [row for row in rows if row.state != OK or not stuck]
    names = ("topic", "brokerName", "queueId", "clientId", "diff", "cachedMsgCount", "locked", "lastPullTimestamp",
             "lastConsumeTimestamp", "state")  # fmt: skip
    spare = ("locked", "lastConsumeTimestamp", "lastPullTimestamp", "cachedMsgCount")
    write_rows(output.value, HeldQueue, first(shown, limit), names, spare=spare)
    stands = any(row.state != OK for row in rows)
    return no_match(len(rows), warn.tell() or int(stands), group=consumer_group)


@command("client stack", "rmqtool client stack @prod billing --client '10.0.0.7@*'")
def client_stack(
    store: TargetArgument, consumer_group: GroupName, client: ClientOption = None, output: OutputOption = Output.text
) -> int:
    """Show what the threads of a group's clients are doing (a thread dump), which only Java clients report.

    Exit code 1: a client does not answer or reports none, or no client matches.
    """
    from rmqtool.cli.framework.choice import matches, no_match
    from rmqtool.cli.render.output import PEOPLE
    from rmqtool.cli.render.rows import Warnings, write_rows
    from rmqtool.cli.render.text import plain

    target, warn = need_target(store), Warnings()
    from rmqtool.admin.live.clients import ClientStack, list_stacks

    chosen = [client] if client else None
    rows = list_stacks(target, warn, consumer_group, lambda name: matches(name, chosen))
    if output.value in PEOPLE:
        for row in rows:
            for line in (row.clientId, *(row.stack or "").splitlines()):
                sys.stdout.write(f"{plain(line)}\n")
    else:
        write_rows(output.value, ClientStack, rows)
    for row in rows:
        if row.stack is None:
            warn(f"client {row.clientId} reports no stack")
    return no_match(len(rows), warn.tell(), group=consumer_group, client=client)


@command("message consume-directly", "rmqtool message consume-directly @lab 7F000001000078BF00000000000000FD lab --yes")
def message_consume_directly(
    store: TargetArgument,
    message_id: Annotated[str, typer.Argument(metavar="ID", help="Offset id or unique id of the message.")],
    consumer_group: GroupName,
    client: ClientOption = None,
    consent: Consent = ASK,
    output: OutputOption = Output.text,
) -> int:
    """Have one online consumer consume one message now, for example to reproduce a failure.

    Its listener is called once with the message. No offset moves and nothing is stored; what the listener does cannot
    be undone. --dry-run shows which client would get the message. Exit code 1: a dry run, or the listener did not
    succeed.
    """
    from rmqtool.cli.framework.planning import carry_out
    from rmqtool.cli.render.rows import Warnings, write_rows
    from rmqtool.cli.render.text import note

    consent.need("message consume-directly")
    target, warn = need_target(store), Warnings()
    from rmqtool.admin.live.clients import DirectPlan, DirectResult, carry_out_direct, plan_direct

    def make_plan(planned: DirectPlan | None = None) -> DirectPlan:
        return planned or plan_direct(target, warn, message_id, consumer_group, client)

    def show(planned: DirectPlan) -> None:
        note(f"  {planned.topic} {planned.message_id} to {planned.client_id}")

    plan, done = carry_out(
        consent, plan=make_plan, show=show, question=lambda _plan: "Have it consume the message?",
        do=make_plan,
    )  # fmt: skip
    result: DirectResult = carry_out_direct(target, warn, plan) if done else plan.result(None)
    write_rows(output.value, DirectResult, [result])
    code = warn.tell()
    if not done:
        note(f"client {plan.client_id} would consume it")
    return code or int(result.consumeResult != "CR_SUCCESS")
