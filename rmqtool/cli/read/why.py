"""The command ``why``: where a message is, where it is not, and what to do next."""

from typing import TYPE_CHECKING, Annotated

import typer

from rmqtool.cli.framework.app import command
from rmqtool.cli.framework.opening import need_messages
from rmqtool.cli.framework.options import BrokerConfOption, Output, OutputOption, StoreDir

if TYPE_CHECKING:
    from rmqtool.services.whereabouts import Whereabouts

_MOST = 10  # messages with one key


@command("why", "rmqtool why store Orders order-65", progress=True)
def why(
    store: StoreDir,
    message: Annotated[
        list[str],
        typer.Argument(metavar="MESSAGE...", help="Its ID (unique or offset id), or TOPIC KEY, or TOPIC QUEUE OFFSET."),
    ],
    limit: Annotated[
        int, typer.Option("--limit", min=1, metavar="N", help="Explain only the newest N messages with the key.")
    ] = _MOST,
    output: OutputOption = Output.text,
    broker_conf: BrokerConfOption = None,
) -> int:
    """Say where a message is and is not: log, queue, index, tier; what it waits for; which groups have passed it.

    A message may have expired, been overwritten, cut off, or never stored; it may wait as a delayed message, as half of
    a transaction, for a retry, or with a POP consumer; a subscription may have filtered it. When a group passed it is
    known from message traces, else only that it was before the group's offsets were last written. Exit code 1: it is
    not in the store, or consumers do not get it from there.
    """
    import time

    from rmqtool.cli.render.output import PEOPLE
    from rmqtool.cli.render.rows import Warnings
    from rmqtool.cli.render.text import note
    from rmqtool.errors import BadValue
    from rmqtool.services.whereabouts import Explainer
    from rmqtool.words import counted

    if len(message) > 3:
        raise BadValue("MESSAGE: give an ID, or TOPIC KEY, or TOPIC QUEUE OFFSET")
    if len(message) == 3 and not all(word.isascii() and word.isdecimal() and len(word) < 19 for word in message[1:]):
        raise BadValue(f"MESSAGE: {' '.join(message[1:])}: QUEUE and OFFSET are numbers")
    warn = Warnings()
    log = need_messages(store, broker_conf, reads_tier=True)
    explainer = Explainer(log, int(time.time() * 1000), warn)
    if len(message) == 1:
        answer = explainer.by_id(message[0])
    elif len(message) == 2:
        answer = explainer.by_key(message[0], message[1], limit)
    else:
        answer = explainer.by_offset(message[0], int(message[1]), int(message[2]))
    if output in PEOPLE:
        _show(answer.messages)
    else:
        _write(answer.messages, output.value)
    if answer.more:
        note(f"{counted(answer.more, 'older message')} with this key not shown: --limit shows more")
    return max(warn.tell(), int(any(each.verdict not in _IN_ORDER for each in answer.messages)))


_IN_ORDER = (
    "stored", "passed", "not-consumed", "waiting", "in-tier", "compacted", "rolled-back", "given-up", "dead-letter",
)  # fmt: skip


def _write(messages: "list[Whereabouts]", form: str) -> None:
    """Write a row for each finding as CSV, else an object for each message."""
    from rmqtool.cli.render.output import write_all, writer
    from rmqtool.cli.render.rows import columns_of, names_of
    from rmqtool.cli.render.times import with_times
    from rmqtool.services.whereabouts import Sighting

    if form != "csv":
        write_all(
            writer(form, ("asked", "msgId", "verdict", "words", "findings", "nextSteps"), ()),
            (with_times(each.to_dict()) for each in messages),
        )
        return
    names = ("asked", "msgId", "verdict", *names_of(Sighting))
    rows = (
        {"asked": each.asked, "msgId": each.msgId, "verdict": each.verdict, **finding.to_dict()}
        for each in messages
        for finding in each.findings
    )
    write_all(writer("csv", names, columns_of(Sighting)), rows)


def _show(messages: "list[Whereabouts]") -> None:
    """Print the verdict, then a line for each finding, then what to do."""
    import sys

    from rmqtool.cli.render.text import columns_of, fold, plain
    from rmqtool.cli.render.times import time_text

    out = sys.stdout

    def line(text: str, hang: str = "  ") -> None:
        out.write(fold(plain(text), out, hang=hang, columns=columns_of(out)) + "\n")

    for number, each in enumerate(messages):
        if number:
            out.write("\n")
        line(f"{each.msgId or each.asked}: {each.verdict}")
        line(f"{each.words[0].upper()}{each.words[1:]}.")
        for finding in each.findings:
            when = f" ({time_text(finding.timestamp)})" if finding.timestamp else ""
            state = "" if finding.state == "present" else f"{finding.state}: "
            line(f"  {finding.place.ljust(8)} {state}{finding.words}{when}", hang=" " * 11)
        if each.nextSteps:
            out.write("Next:\n")
            for step in each.nextSteps:
                line(f"  {step}", hang="    ")
