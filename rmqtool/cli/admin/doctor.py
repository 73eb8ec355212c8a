"""The command ``doctor``: what is wrong in a live cluster."""

from enum import StrEnum
from typing import Annotated

from rmqtool.cli.framework.app import command
from rmqtool.cli.framework.options import Output, OutputOption, TargetArgument, option
from rmqtool.errors import BadValue


class Least(StrEnum):
    """How bad a finding must be to be shown."""

    error = "error"
    warning = "warning"
    info = "info"


@command("doctor", "rmqtool doctor @prod --severity warning")
def doctor(
    store: TargetArgument,
    severity: Annotated[
        Least, option("--severity", "SEVERITY", "Only findings of at least this severity: error, warning or info.")
    ] = Least.info,
    output: OutputOption = Output.text,
) -> int:
    """Find what is wrong in a live cluster: servers, clocks, disks, topics, groups, retries and settings.

    Name servers that differ, brokers that do not answer or have no master, clocks, slaves that are far behind, full
    disks, queues that nobody reads, settings that differ or that no broker knows, clients of a group that want
    different things, groups that lag without clients, retries that pile up, and dead letters of the last hour. Nothing
    is changed. explain tells what a code means. Exit code 0: nothing was found, or infos only; 1: errors or warnings,
    or a broker does not answer.
    """
    from rmqtool.admin.doctor.run import ClusterFinding, examine
    from rmqtool.cli.framework.opening import live_target
    from rmqtool.cli.render.rows import Warnings, write_rows
    from rmqtool.cli.render.text import note
    from rmqtool.store.check.codes.code import INFO, SEVERITIES
    from rmqtool.words import command_line

    target = live_target(store)
    if target is None:
        raise BadValue(f"{store}: give a live cluster: rocketmq://HOST:9876, or @NAME; check is for a store directory")
    warn = Warnings()
    shown = SEVERITIES[: SEVERITIES.index(severity.value) + 1]
    findings = [finding for finding in examine(target, warn) if finding.severity in shown]
    names = ("severity", "code", "server", "topic", "group", "actual", "fix")
    write_rows(output.value, ClusterFinding, findings, names, wide=("actual", "fix"))
    if findings:
        note(f"what a code means: {command_line('explain', 'CODE')}")
    else:
        note("nothing was found")
    return warn.tell() or (1 if any(finding.severity != INFO for finding in findings) else 0)
