"""Fuzzers in separate processes, each given some cases at a time, with common totals."""

import multiprocessing
import os
import signal
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import FrameType

from tests.fuzz.run import Failure, Fuzzer, Totals, words_of

_PART = 50  # cases that a process is given at a time
_TOLD = 60.0  # seconds from one line about the state to the next


@dataclass(frozen=True)
class Wanted:
    """The cases to run, and the limits at which to stop, whichever comes first."""

    seed: int
    first: int = 0
    cases: float = inf
    mutations: float = inf
    seconds: float = inf
    failures: float = inf


@dataclass
class _Worker:
    process: BaseProcess
    end: Connection
    part: range = range(0)  # cases that it was given and has not answered


class Jobs:
    """One run over several processes.

    Args:
        jobs: number of processes.
        folder: each process works in a directory below it.
        keep: directory for the stores of failures.
    """

    def __init__(self, wanted: Wanted, jobs: int, folder: Path, keep: Path | None) -> None:
        self.wanted, self.totals = wanted, Totals()
        self._given, self._stopped = 0, False
        context = multiprocessing.get_context("spawn")
        self._workers = []
        for number in range(jobs):
            ours, theirs = context.Pipe()
            process = context.Process(target=_work, args=(theirs, wanted.seed, folder / str(number), keep), daemon=True)
            process.start()
            theirs.close()
            self._workers.append(_Worker(process, ours))

    def run(self) -> Totals:
        """Run until done or :meth:`stop`; then running cases are finished and counted."""
        start = told = time.monotonic()
        for worker in self._workers:
            self._give(worker)
        while busy := {worker.end: worker for worker in self._workers if worker.part}:
            for end in wait(list(busy), timeout=0.5):
                self._take(busy[end])  # type: ignore[index]
            now = time.monotonic()
            if now - start > self.wanted.seconds and not self._stopped:
                self.stop()
            if now - told > _TOLD:
                told = now
                print(f"{now - start:.0f} s: {_state(self.totals)}", file=sys.stderr, flush=True)
        for worker in self._workers:
            worker.end.close()
            worker.process.join()
        return self.totals

    def stop(self) -> None:
        """Start no more cases."""
        self._stopped = True
        for worker in self._workers:
            worker.process.terminate()

    def _give(self, worker: _Worker) -> None:
        wanted, totals = self.wanted, self.totals
        count = min(_PART, wanted.cases - self._given)
        enough = totals.mutations.total() >= wanted.mutations or len(totals.failures) >= wanted.failures
        if self._stopped or enough or count <= 0:
            return
        first = wanted.first + self._given
        worker.part = range(first, first + int(count))
        self._given += int(count)
        worker.end.send((worker.part.start, len(worker.part)))

    def _take(self, worker: _Worker) -> None:
        part, worker.part = worker.part, range(0)
        try:
            result = worker.end.recv()
        except (EOFError, ConnectionResetError):
            worker.process.join()
            if self._stopped:  # before it could begin
                return
            what = f"the process ended with {worker.process.exitcode} in cases {part.start} to {part.stop - 1}"
            result = Totals(failures=[Failure(part.start, "any", [], "any", what)])
        else:
            self._give(worker)
        for failure in result.failures:
            print(words_of(failure), file=sys.stderr, flush=True)
        self.totals.add(result)


def _state(totals: Totals) -> str:
    return f"{totals.cases} cases, {totals.mutations.total()} mutations, {len(totals.failures)} failures"


def _work(end: Connection, seed: int, folder: Path, keep: Path | None) -> None:
    """Run parts until the connection closes; executed by each process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to all; the first process says when to stop
    folder.mkdir()
    tempfile.tempdir = os.environ["TMPDIR"] = str(folder)  # plans make their files there too
    fuzzer = Fuzzer(seed, folder, keep)

    def stop(_number: int, _frame: FrameType | None) -> None:
        fuzzer.stopped = True

    signal.signal(signal.SIGTERM, stop)
    with suppress(EOFError):
        while True:
            first, count = end.recv()
            fuzzer.totals = Totals()
            end.send(fuzzer.run(first, count))
