"""``dump-to-parquet`` of a live cluster: writes the messages of its queues to Parquet files.

Each task reads a range of a queue. No consumer group is touched. With ``since_last`` the manifest of the output has a
position for each queue, with the message before it: the next run proves with it that the queue is still the same.
"""

import fnmatch
import time
import uuid
from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import Any

from formats.remoting.shapes import MessageQueue
from rmqtool.admin.target import Target
from rmqtool.analytics.dump.live_task import LiveTask
from rmqtool.analytics.dump.names import RUN
from rmqtool.analytics.dump.output import MANIFEST, DumpOutput, describe_run, holding, open_output
from rmqtool.analytics.dump.position import check_kept
from rmqtool.analytics.dump.report import DumpOptions, DumpReport, jsonable, sum_up
from rmqtool.analytics.dump.tasks import Job, Progress, files_of, open_spark, pulled_before, run_splits
from rmqtool.analytics.live.options import EARLIEST, Boundary, LiveRequest
from rmqtool.analytics.live.plan import Follower, check_cluster, plan_ranges
from rmqtool.analytics.live.positions import Offsets, QueuePosition, Range, divide, from_json, ranges_between, to_json
from rmqtool.analytics.live.queues import Queues, connected
from rmqtool.analytics.remote.secrets import clean
from rmqtool.analytics.spark.awaiting import Tell
from rmqtool.analytics.table.choice import MessageChoice
from rmqtool.analytics.table.schema import MESSAGE_TABLE
from rmqtool.client.consumer.proof import MadeAgain
from rmqtool.errors import BadValue, Refused
from rmqtool.version import __version__

_MOST_RECORDS = 500_000  # messages of a task
_KEPT = ("partition_by", "topics", "body_schema")  # options that must be the same for all files of a growing output
_SAME = (*_KEPT, "since", "until", "codec", "row_group_bytes", "file_bytes", "since_last")  # for a killed run to go on
_OF_A_LOG = {"where": "--where", "start_offset": "--offset", "stop_offset": "--offset"}
_WILD = frozenset("*?[")


def dump_cluster_to_parquet(
    target: Target,
    out: str,
    options: DumpOptions | None = None,
    progress: Progress | None = None,
    tell: Tell | None = None,
) -> DumpReport:
    """Write the messages of a cluster's queues to a directory of Parquet files.

    The rows are those of the table ``messages`` of the data source, with a column ``broker``. The directory appears
    once it is complete; on failure, it is absent or as before.

    Args:
        out: as for :func:`rmqtool.dump_to_parquet`.
        options: ``topics`` are ordinary topics; by default all of them are read.
        progress: called from time to time with the messages read so far and the total.
        tell: receives one line about a cluster of Spark that does not start the job.

    Raises:
        BadValue: an option has an invalid value, or is one of a store's log.
        Refused: the output exists or cannot be written; or a queue is not the one that it was read up to.
        MissingRuntime: Spark cannot be started.
        RmqError: a topic is not known, a broker does not answer, writing or Spark failed.
    """
    options = options or DumpOptions()
    options.check()
    with clean(out):
        output = open_output(out, [], overwrite=options.overwrite, grow=options.since_last)
        return dump_cluster_to(output, target, options, progress, tell)


def dump_cluster_to(
    output: DumpOutput,
    target: Target,
    options: DumpOptions,
    progress: Progress | None = None,
    tell: Tell | None = None,
) -> DumpReport:
    """As :func:`dump_cluster_to_parquet`, to an output that has been checked."""
    for name, option in _OF_A_LOG.items():
        if getattr(options, name) is not None:
            raise BadValue(f"{option} is for the log of a store, not for a live cluster")
    with holding(output) as beside:
        return _LiveDump(target, options, output).run(beside, progress, tell)


class _LiveDump:
    """One run writing to an output that it holds."""

    def __init__(self, target: Target, options: DumpOptions, output: DumpOutput) -> None:
        self._began = time.monotonic()
        self._target, self._output = target, output
        self._before = output.manifest() if options.since_last else None
        request = _request_of(target, options)
        if options.body_schema is not None:
            check_cluster(request)
        self._options = output.settle_bodies(options, request)
        self._request = replace(request, bodies=output.bodies)
        self._lost: list[str] = []
        self._positions: Offsets | None = None

    def _plan_again(self) -> tuple[dict[str, Any], list[Range]]:
        """Return (a description of the run, its ranges): those of a run that was killed, or a new plan.

        The ranges of a killed run are read to their planned ends, so that what it has read remains of use.
        """
        same = {
            "rmqtool": __version__,
            "cluster": self._target.text,
            "options": jsonable({name: getattr(self._options, name) for name in _SAME}),
            "before": None if self._before is None else self._before.get("offsets"),
        }
        run = self._output.staging.read_json(RUN)
        if isinstance(run, dict) and {name: run.get(name) for name in same} == same:
            with suppress(KeyError, TypeError, ValueError):
                ranges = [Range.from_list(part) for part in run["ranges"]]
                self._positions, self._lost = run["positions"], [str(text) for text in run["lost"]]
                return run, ranges
        ranges = self._plan()
        rest = {"ranges": [part.to_list() for part in ranges], "positions": self._positions, "lost": self._lost}
        return jsonable({**same, **rest}), ranges

    def _plan(self) -> list[Range]:
        """Find out what is to be read and, with ``since_last``, what the positions will be then."""
        check_cluster(self._request)
        if not self._options.since_last:
            return plan_ranges(self._request)
        start = self._positions_before()
        with connected(self._target) as (loop, cluster):
            request = replace(self._request, strict=False)
            queues = _GrowingQueues(cluster, request, self._output.name)
            follower = Follower(queues, request)
            if self._before is None:
                start = dict(loop.run(follower.begin(EARLIEST)))
            end = loop.run(follower.advance(start))
        self._lost, self._positions = queues.lost, to_json(end)
        return divide(ranges_between(start, end), None, self._request.most_records)

    def _positions_before(self) -> dict[MessageQueue, QueuePosition]:
        if self._before is None:
            return {}
        kept = jsonable({name: getattr(self._options, name) for name in _KEPT})
        check_kept(self._output.name, self._before, kept, adds_columns=self._output.adds_columns)
        if not isinstance(offsets := self._before.get("offsets"), dict):
            raise Refused(f"{self._output.name}: was written from a store, not from a live cluster")
        try:
            return from_json(offsets)
        except BadValue:
            raise Refused(f"{self._output.name}: its {MANIFEST} has no positions of queues") from None

    def run(self, beside: ExitStack, progress: Progress | None, tell: Tell | None) -> DumpReport:
        """Read, write and publish."""
        options, output = self._options, self._output
        run, ranges = self._plan_again()
        tasks = [LiveTask(number, self._request, part) for number, part in enumerate(ranges)]
        done = pulled_before(output.staging, tasks) if output.begin(run) else {}
        resumed = len(done)
        left = [task for task in tasks if task.number not in done]
        job = Job(
            output.staging.location,
            uuid.uuid4().hex[:8],
            MessageChoice(),
            options.partition_by,
            options.codec,
            row_group_bytes=options.row_group_bytes,
            file_bytes=options.file_bytes,
            bodies=self._request.bodies,
            table=MESSAGE_TABLE,
        )
        with open_spark(options, left, beside, tell) as context:
            startup = time.monotonic() - self._began
            results = run_splits(job, left, context, progress, tell)
            done |= {task.number: result for task, result in zip(left, results, strict=True)}
            spark = None if context is None else f"Spark {context.version}, {context.master}"
        results = [done[task.number] for task in tasks]
        files = files_of(results) or (job.write_empty() if not self._before and output.writes_empty_file else [])
        report = DumpReport(
            out=output.place,
            splits=len(tasks),
            resumed=resumed,
            lost=tuple(self._lost),
            spark=spark,
            startup_seconds=startup,
            seconds=time.monotonic() - self._began,
            **sum_up([each.tally for each in results], files),
        )
        output.publish(
            {
                **describe_run(report, options, job.schema, self._before, files),
                "cluster": self._target.text,
                "offsets": self._positions,
            }
        )
        return report


class _GrowingQueues(Queues):
    """Queues that an output follows: what has expired is reported, and a queue that was made again is refused.

    Attributes:
        lost: descriptions of messages that the output will not have.
    """

    def __init__(self, *args: Any) -> None:
        cluster, request, self._output = args
        super().__init__(cluster, request)
        self.lost: list[str] = []

    def lose_queue(self, err: MadeAgain) -> None:
        raise Refused(f"{self._output}: {err}. To go on: dump the cluster to another directory") from err

    def lose(self, text: str, otherwise: str = "goes on without them") -> None:
        self.lost.append(text)


def _request_of(target: Target, options: DumpOptions) -> LiveRequest:
    exact = tuple(topic for topic in options.topics if _WILD.isdisjoint(topic))
    pattern = None
    if len(exact) < len(options.topics) or not options.topics:
        pattern, exact = "|".join(map(fnmatch.translate, options.topics or ("*",))), ()
    return LiveRequest(
        target,
        exact,
        pattern,
        start=None if options.since is None else Boundary(timestamp=options.since),
        end=None if options.until is None else Boundary(timestamp=options.until),
        most_records=_MOST_RECORDS,
        by_option=False,
    )
