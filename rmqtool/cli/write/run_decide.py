"""Answers for the producers in ``run --transactions``: a fixed word, or a command run for each message."""

import contextlib
import os
import select
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Callable

from rmqtool.cli.render.text import dump_json, note
from rmqtool.contract import message_row
from rmqtool.errors import BadValue, Refused
from rmqtool.services.transactions.rules import CheckRequest, Decide, Decision

_SECONDS = 60.0  # a command may take for one answer
_GRACE = 0.5  # between SIGTERM and SIGKILL
_KEPT = 1024  # most bytes of output; an answer is one word
_NO_COMMAND = (126, 127)  # exit codes of shells and env that cannot run a command
_CHUNK = 1 << 16


def decider(text: str | None, interrupt: int, asked: Callable[[], bool]) -> Decide | None:
    """The decider that the option asks for.

    Args:
        interrupt: a descriptor that becomes readable when waiting for a command must end.
        asked: whether it must.

    Raises:
        BadValue: neither an answer nor an existing command.
    """
    if text is None:
        return None
    word, _, rest = text.partition(" ")
    if not rest and word in tuple(Decision):
        return lambda _request: Decision(word)
    try:
        words = shlex.split(rest)
    except ValueError as err:
        raise BadValue(f"--transactions {text!r}: {err}") from None
    if word != "exec" or not words:
        raise BadValue(f"--transactions {text!r}: give {', '.join(Decision)} or 'exec COMMAND'")
    if shutil.which(words[0]) is None:
        why = "is not executable" if os.path.exists(words[0]) else "no such command"
        raise BadValue(f"--transactions {text!r}: {words[0]}: {why}")
    return DecidingCommand(words, interrupt, asked)


class DecidingCommand:
    """A command that gets a half message, in its own process group, and prints the outcome.

    :meth:`begin` starts it before the check is counted: a command that cannot be started is a configuration error, and
    no message may be given up because of it.
    """

    def __init__(self, words: list[str], interrupt: int, asked: Callable[[], bool]) -> None:
        self._words, self._interrupt, self._asked = words, interrupt, asked
        self._process: subprocess.Popen[bytes] | None = None

    def begin(self) -> None:
        """Start it for the next message.

        Raises:
            Refused: it cannot be started.
        """
        self.close()
        try:
            self._process = subprocess.Popen(
                self._words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
            )
        except (OSError, ValueError) as err:
            raise Refused(f"--transactions: {self._words[0]}: cannot be started: {err}") from err

    def close(self) -> None:
        """End a process that was started and not used."""
        process, self._process = self._process, None
        if process is not None:
            _end(process)

    def __call__(self, request: CheckRequest) -> Decision:
        if self._process is None:
            self.begin()
        process, self._process = self._process, None
        assert process is not None
        row = message_row(request.record, request.record.physical_offset) | {
            "properties": request.properties,
            "producerGroup": request.producer_group,
            "msgId": request.message_id,
            "checkTimes": request.check_times,
        }
        try:
            reply, why = self._talk(process, (dump_json(row) + "\n").encode("utf-8", "backslashreplace"))
        finally:
            _end(process)
        if why is None and process.returncode in _NO_COMMAND:
            raise Refused(f"--transactions: {self._words[0]}: ended with {process.returncode}: a command was not found")
        answer = reply.decode("utf-8", "backslashreplace").strip()
        if why is None and not process.returncode and answer in tuple(Decision):
            return Decision(answer)
        why = why or f"ended with {process.returncode} and said {answer[:80]!r}"
        note(f"warning: {request.message_id}: {self._words[0]} {why}: its outcome stays unknown")
        return Decision.UNKNOWN

    def _talk(self, process: subprocess.Popen[bytes], question: bytes) -> tuple[bytes, str | None]:
        """(the beginning of its output, why it was not waited for)."""
        assert process.stdin is not None
        assert process.stdout is not None
        to, out = process.stdin.fileno(), process.stdout.fileno()
        for fd in (to, out):
            os.set_blocking(fd, False)
        left, answer, until = memoryview(question), b"", time.monotonic() + _SECONDS
        ended = os.pidfd_open(process.pid)
        try:
            while True:
                if self._asked():
                    return answer, "was ended, because rmqtool was asked to end,"
                if (rest := until - time.monotonic()) <= 0:
                    return answer, f"has given no answer within {_SECONDS:.0f} s"
                ready, writable, _ = select.select([out, ended, self._interrupt], [to] if left else [], [], rest)
                if writable:
                    left = _tell(process, left)
                if out in ready:
                    data = os.read(out, _CHUNK)
                    answer = (answer + data)[:_KEPT]
                    if not data:  # it has closed its output
                        select.select([ended, self._interrupt], [], [], max(until - time.monotonic(), 0))
                        ready = [ended] if process.poll() is not None else []
                        if not ready:
                            continue
                elif ended in ready:  # its children may keep its output open
                    pass
                if ended in ready:
                    process.wait()
                    return (answer + _rest(out))[:_KEPT], None
        finally:
            os.close(ended)


def _tell(process: subprocess.Popen[bytes], left: memoryview) -> memoryview:
    """Write as much of the question as it reads; returns the rest."""
    assert process.stdin is not None
    try:
        left = left[os.write(process.stdin.fileno(), left) :]
    except BlockingIOError:
        return left
    except BrokenPipeError:  # it does not read the question
        left = left[:0]
    if not left:
        process.stdin.close()
    return left


def _rest(fd: int) -> bytes:
    """What is left in the pipe, up to the limit."""
    with contextlib.suppress(BlockingIOError):
        return os.read(fd, _KEPT)
    return b""


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a running process and its children, and close the pipes."""
    if process.returncode is None:  # it was not waited for, so the number of its group cannot be reused
        for number, seconds in ((signal.SIGTERM, _GRACE), (signal.SIGKILL, 0)):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, number)
            ended = os.pidfd_open(process.pid)
            select.select([ended], [], [], seconds)
            os.close(ended)
        process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()
