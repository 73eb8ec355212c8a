"""The answers to appended messages: line by line, or as counts."""

import os
import sys
from collections import Counter
from collections.abc import Sequence
from typing import Any

from rmqtool.cli.framework.ending import StopSignal
from rmqtool.cli.render.output import PEOPLE, Column, writer
from rmqtool.cli.render.text import note
from rmqtool.contract import PUT_FIELDS
from rmqtool.errors import OutputLost
from rmqtool.services.sending.importer import Answer
from rmqtool.store.append.answers import PutResult
from rmqtool.words import counted

_MOST_NAMED = 100  # lines named on stderr


class AppendTally:
    """Reports what became of each row, or counts.

    Args:
        output: form of the result; a table has the counts.
        unit: name of a row in notes.
    """

    def __init__(self, output: str, unit: str = "line") -> None:
        self.counts: Counter[tuple[str, int]] = Counter()
        self.refused = 0
        self.last = 0  # number of the last row that was answered
        self._unit, self._form = unit, output
        try:
            self._writer = None if output in PEOPLE else writer(output, PUT_FIELDS, [])
        except OSError as err:
            raise OutputLost(f"stdout: {os.strerror(err.errno or 0)}: nothing was read") from err

    def take(self, numbers: Sequence[int], answers: Sequence[Answer]) -> None:
        """Report the answers for some rows.

        Raises:
            OutputLost: they cannot be written any more.
        """
        pairs = iter(zip(numbers, answers, strict=True))
        try:
            for number, answer in pairs:
                self.last = number
                row = self._count(number, answer)
                if self._writer is not None:
                    self._writer.row({**dict.fromkeys(PUT_FIELDS), **row})
            sys.stdout.flush()
        except OSError as err:
            for number, answer in pairs:
                self.last = number
                self._count(number, answer, silently=True)
            raise self._output_lost(err, "what follows was not read") from err

    def _count(self, number: int, answer: Answer, *, silently: bool = False) -> dict[str, Any]:
        """Count an answer; returns its row."""
        if not isinstance(answer, str) and answer.ok:
            self.counts[answer.topic, answer.queue_id] += 1
            return _place_of(number, answer)
        self.refused += 1
        if isinstance(answer, str):
            row, reason = {"line": number, "status": "NOT_A_MESSAGE"}, answer
        else:
            row, reason = {"line": number, "status": answer.status}, answer.reason
            row |= {"topic": answer.topic, "queueId": answer.queue_id}
        if not silently:
            self._name(number, reason)
        return row | {"reason": reason}

    def _name(self, number: int, reason: str) -> None:
        if self.refused <= _MOST_NAMED:
            note(f"{self._unit} {number}: {reason}")
        elif self.refused == _MOST_NAMED + 1:
            note("more are not named here (see --output ndjson)")

    @property
    def words(self) -> str:
        """How many messages there were."""
        more = f", {self.refused} refused" if self.refused else ""
        return f"{counted(sum(self.counts.values()), 'message')} appended{more}"

    def _output_lost(self, err: OSError, rest: str) -> OutputLost:
        upto = f", up to {self._unit} {self.last}" if self.last else ""
        return OutputLost(f"stdout: {os.strerror(err.errno or 0)}: {self.words}{upto}; {rest}")

    def close(self, ending: StopSignal | None = None) -> int:
        """End the output; returns the exit code.

        Args:
            ending: the signal that ended reading, if any.

        Raises:
            OutputLost: it cannot be written.
        """
        try:
            if self._writer is not None:
                self._writer.close()
            else:
                columns = [Column("topic"), Column("queueId", right=True), Column("messages", right=True)]
                table = writer(self._form, (), columns)
                for (topic, queue_id), messages in sorted(self.counts.items()):
                    table.row({"topic": topic, "queueId": queue_id, "messages": messages})
                table.close()
        except OSError as err:
            raise self._output_lost(err, "all was read" if ending is None else "what follows was not read") from err
        if ending is not None and ending.signal is not None:
            upto = f" up to {self._unit} {self.last}" if self.last else ""
            goes_on = f"; to go on, begin with {self._unit} {self.last + 1}" if self.last else ""
            note(f"{ending.signal.name}: {self.words}{upto}; what follows was not read{goes_on}")
            return ending.exit_code
        note(self.words)
        return 1 if self.refused else 0


def _place_of(number: int, result: PutResult) -> dict[str, Any]:
    places = (result.queue_offset, result.physical_offset, result.size, result.store_timestamp, result.message_id)
    return dict(zip(PUT_FIELDS, (number, result.status, result.topic, result.queue_id, *places, None), strict=True))
