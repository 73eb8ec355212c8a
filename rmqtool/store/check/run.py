"""The complete check: runs every part and yields findings as they come."""

import os
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from rmqtool.errors import UnreadableStore
from rmqtool.progress import stage
from rmqtool.rules.releases import Release
from rmqtool.store.check.advice.advice import Situation
from rmqtool.store.check.advice.steps import by_hand
from rmqtool.store.check.codes.all import ERROR, WARNING
from rmqtool.store.check.common.context import Context
from rmqtool.store.check.common.files import check_alone
from rmqtool.store.check.common.findings import DETAILS, Finding, FindingCollector
from rmqtool.store.check.configs import check_configs
from rmqtool.store.check.configuration import check_configuration
from rmqtool.store.check.dledger import check_dledger
from rmqtool.store.check.index.index import IndexCheck
from rmqtool.store.check.log.log import LogCheck, RecordRun
from rmqtool.store.check.marks import check_checkpoint, check_marks, check_presence, check_role, queues_are_files
from rmqtool.store.check.queues.compaction import check_compaction
from rmqtool.store.check.queues.extension import check_extension
from rmqtool.store.check.queues.message_store import check_message_store
from rmqtool.store.check.queues.pops import check_pops
from rmqtool.store.check.queues.queues import QueueCheck
from rmqtool.store.check.queues.rocks import RocksQueueCheck, open_database
from rmqtool.store.check.replication import check_replication
from rmqtool.store.check.tiered import check_tier_continues, check_tiered
from rmqtool.store.check.timer.timer import check_timer
from rmqtool.store.config.fit import misfits
from rmqtool.store.index.reader import pass_over_unreadable
from rmqtool.store.layout.mending import find_in_the_way
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.true_names import find_misnamed


def check_store(
    layout: StoreLayout, *, release: Release | None = None, details: int = DETAILS, situation: Situation | None = None
) -> Iterator[Finding]:
    """Check a whole store without writing; works even if no broker would load it.

    The log is read once, from beginning to end. Memory holds a summary of each file, a batch of records, and the
    findings.

    If several files agree on a length that differs from the configured one, that is one finding, and the files' length
    is used.

    Args:
        release: the release whose rules apply; None for the release that seems to have written the store.
        details: number of findings listed individually per code, file and queue; further ones are counted.
        situation: filled in, for interpreting the findings together.
    """
    findings = FindingCollector(details, situation)
    layout = layout.passing_over()
    pass_over_unreadable(layout)
    unfit = misfits(layout, release)
    wrong = {name for misfit in unfit if misfit.sure for name in misfit.names} | layout.conf.refused.keys()
    ctx = Context(layout.with_conf(layout.conf.without(wrong)), findings, release)
    check_role(ctx)
    check_configuration(ctx, layout.conf, unfit, asked=release is not None)
    check_marks(ctx)
    with_queues = queues_are_files(ctx)
    queues, index = QueueCheck(ctx), IndexCheck(ctx)
    if with_queues:
        with stage("reading the queues", unit="queues") as loading:
            for _ in queues.load():
                loading.done += 1
        check_extension(ctx)
    rocks = RocksQueueCheck(ctx, database) if (database := open_database(ctx)) is not None else None
    with_index = with_queues or rocks is not None
    if with_index:
        for _ in index.load():
            pass
    check_presence(ctx, queues.entries)

    ctx.choose_start(queues.known if with_queues else None)
    if with_queues:
        check_alone(ctx, queues.known)

    def take(stretch: RecordRun) -> None:
        if with_queues:
            queues.take(stretch)
        if rocks is not None:
            rocks.take(stretch)
        if with_index:
            index.take(stretch)

    # advice depends on the whole log, so nothing is reported before it has been read
    for _ in LogCheck(ctx, take).run():
        pass
    if ctx.log_seen.last_timestamp is None and not ctx.log_seen.absent:
        check_presence(ctx, queues.entries, read=True)
    if "log-position" in findings.situation.log_codes:
        with suppress(UnreadableStore):
            findings.situation.misnamed = bool(find_misnamed(ctx.log.segments.files, ctx.log.file_size))
    if with_queues:
        findings.situation.queues_damaged = queues.damaged
    check_tier_continues(ctx)
    _report_in_the_way(ctx)
    reported = _report_skipped(ctx, set())
    yield from findings.drain()
    if with_queues:
        with stage("comparing queues with the log"):
            for _ in queues.finish():
                yield from findings.drain()
    for _ in rocks.finish() if rocks is not None else ():
        yield from findings.drain()
    for _ in index.finish() if with_index else ():
        yield from findings.drain()
    ends = [file.header.end_timestamp for file in index.files]
    check_checkpoint(ctx, max(ends, default=None))
    check_timer(ctx, queues=with_queues)
    check_message_store(ctx)
    check_compaction(ctx)
    check_pops(ctx, queues=with_queues or rocks is not None)
    check_tiered(ctx)
    check_replication(ctx)
    check_dledger(ctx)
    check_configs(ctx, queues=with_queues or rocks is not None)
    _report_skipped(ctx, reported)
    yield from findings.rest()


def _report_in_the_way(ctx: Context) -> None:
    """Report files where directories belong, and the other way round."""
    for path, advice in find_in_the_way(ctx.layout).items():
        name = ctx.name(path)
        ctx.found.situation.stuck = True
        consequence = "The broker can neither read nor write what belongs there."
        if name != "abort" and not name.startswith(f"config{os.sep}"):
            ctx.found.situation.refused = True
            consequence = "The broker does not start."
        ctx.found.add("file-foreign", name, consequence=consequence, steps=by_hand(advice))


def _report_skipped(ctx: Context, reported: set[str]) -> set[str]:
    """Report each part of the store that could not be read and was skipped; returns all reported so far."""
    ignored, moved = ctx.layout.passed or {}, find_in_the_way(ctx.layout)
    for path in sorted(ignored.keys() - reported):
        about: dict[str, Any] = {"actual": ignored[path]}
        for place, advice in moved.items():
            if path == place or path.startswith(f"{place}{os.sep}"):
                about["steps"] = by_hand(advice)
        ctx.found.add("file-unreadable", ctx.name(path), **about)
    return set(ignored)


def is_problem(finding: Finding) -> bool:
    """Whether a finding makes a store unclean; those of severity info do not."""
    return finding.severity in (ERROR, WARNING)
