"""The command ``report html``: a page about a store."""

from dataclasses import dataclass
from typing import Annotated

import typer

from rmqtool.cli.framework.app import command
from rmqtool.cli.framework.opening import need_messages
from rmqtool.cli.framework.options import AtOption, BrokerConfOption, Output, OutputOption, StoreDir
from rmqtool.contract import PlainRow


@dataclass(frozen=True, slots=True, kw_only=True)
class PageRow(PlainRow):
    """A page that was written.

    Attributes:
        findings: of ``check``.
        failures: warnings, also of parts that could not be read.
    """

    path: str
    bytes: int
    findings: int
    failures: int


@command("report html", "rmqtool report html store store.html --redact", progress=True)
def report_html(
    store: StoreDir,
    out: Annotated[str, typer.Argument(metavar="OUT", help="The .html to create; must not exist.")],
    redact: Annotated[
        bool, typer.Option("--redact", help="Replace names of topics and groups; leave out hosts, paths and ids.")
    ] = False,
    at: AtOption = "now",
    output: OutputOption = Output.text,
    broker_conf: BrokerConfOption = None,
) -> int:
    """Write a page about a store: one HTML file for any browser, without scripts, that loads nothing from a network.

    It shows the state of the store, a map of its log with topics, damage and where the next start ends it, findings of
    check and what to do, traffic and sizes over time, topics and uneven queues, lag and the age of the oldest unread
    message by group, delayed messages, and dead letters by cause. No body, key or property is in it. The store is only
    read. Exit code 1: something could not be read; the page names it.
    """
    from rmqtool.cli.framework.privacy import as_private_as
    from rmqtool.cli.html.page import render_page
    from rmqtool.cli.render.rows import write_rows
    from rmqtool.cli.render.text import note
    from rmqtool.cli.render.times import parse_time
    from rmqtool.services.overview.overview import look_over
    from rmqtool.services.overview.redacting import redact as without_names
    from rmqtool.store.disk.outputs import check_output, write_output
    from rmqtool.words import counted

    time = parse_time(at)
    layout = need_messages(store, broker_conf, what="not shown").layout
    check_output(out, layout.root)
    overview = look_over(layout, time)
    if redact:
        overview = without_names(overview, layout)
    data = render_page(overview, "STORE" if redact else store, redacted=redact).encode("utf-8")
    with as_private_as(layout.root):
        write_output(out, data)
    row = PageRow(path=out, bytes=len(data), findings=overview.findings, failures=len(overview.failures))
    write_rows(output.value, PageRow, [row], wide=("path",))
    if overview.failures:
        note(f"{counted(len(overview.failures), 'warning')}, shown on the page")
    return 1 if overview.failures else 0
