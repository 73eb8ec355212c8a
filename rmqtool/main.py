"""Entry point of the command ``rmqtool``: it does as little as possible before the command is known."""

import gc
import io
import os
import sys

TYPE_CHECKING = False  # typing takes its time to load
if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_STDOUT = "stdout"


class _Stdout(io.FileIO):
    """Standard output. A failed write carries its name, so that it is not mistaken for an error of a store."""

    def write(self, data: "ReadableBuffer", /) -> int:
        try:
            return super().write(data)
        except OSError as err:
            err.filename = _STDOUT
            raise


def main() -> None:
    """Run the command line and exit with its code."""
    # modules loaded at the start stay in use: searching them for garbage again and again takes a sixth of the start
    gc.set_threshold(50_000)
    # NumPy's matrix library would start threads that spin while they wait for work, and there is none here
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    terminated: list[int] = []
    try:
        _prepare()
        terminated = _end_readers_as_ctrl_c_does(sys.argv[1:])
        code = _run_paged(sys.argv[1:])
        sys.stdout.flush()
    except OSError as err:
        code = _exit_code_of(err)
    except KeyboardInterrupt:
        _stop_writing()
        code = 130
    if code == 130:
        _say_stopped(sys.argv[1:])
    gc.freeze()  # searching all objects for garbage at the exit takes a tenth of a short command
    sys.exit(143 if terminated and code == 130 else code)


def _prepare() -> None:
    """Set up the three standard streams as commands expect them, and turn bad sectors into errors with a message."""
    _fill_descriptors()
    if sys.stdin is None:  # closed by the parent process; sys.__stdin__ still shows that
        sys.stdin = open(os.devnull, encoding="utf-8")  # noqa: SIM115 - as long as the process
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the parent process
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 - as long as the process
        elif name == "stdout":
            _name_stdout()
        # topics and bodies are UTF-8 whatever the terminal's locale says, and may be malformed
        getattr(sys, name).reconfigure(encoding="utf-8", errors="backslashreplace")
    if len(sys.argv) > 2:  # a command and its argument
        from rmqtool.cli.startup.bus_error import arm

        arm(_last_line)


def _name_stdout() -> None:
    before = sys.stdout
    if not isinstance(before, io.TextIOWrapper):
        return
    raw, unbuffered = _Stdout(before.fileno(), "w", closefd=False), before.write_through  # by python -u
    sys.stdout = io.TextIOWrapper(
        raw if unbuffered else io.BufferedWriter(raw),
        encoding="utf-8",
        line_buffering=before.line_buffering,
        write_through=unbuffered,
    )


def _end_readers_as_ctrl_c_does(argv: list[str]) -> list[int]:
    """Let SIGTERM stop a command that changes no store at once, and say so; the others handle it themselves.

    Returns:
        A list to which the signal is added when it arrives.
    """
    from signal import SIG_DFL, SIGTERM, getsignal, signal

    from rmqtool.cli.commands import find_command

    came: list[int] = []

    def take(number: int, _frame: object) -> None:
        came.append(number)
        raise KeyboardInterrupt

    command = find_command(argv)
    ends_well = command is not None and command.writes and not command.discards
    if not ends_well and getsignal(SIGTERM) is SIG_DFL:
        signal(SIGTERM, take)
    return came


def _run_paged(argv: list[str]) -> int:
    """Run a command line; on a terminal its output goes through a pager, with notes below it."""
    from rmqtool.cli.startup.paging import notes_below, through_pager

    with notes_below(argv):
        if not sys.stdout.isatty() and "--no-pager" not in argv:
            return _run(argv)
        with through_pager(argv) as left:
            return _run(left)


def _say_stopped(argv: list[str]) -> None:
    """What was running when Ctrl-C came, and what remains of it."""
    if "rmqtool.progress" in sys.modules:
        from rmqtool.cli.startup.failing import tell_stopped

        tell_stopped(argv)


def _last_line(words: str) -> str:
    from rmqtool.cli.startup.failing import line
    from rmqtool.errors import UnreadableStore

    return line(UnreadableStore(words), sys.argv[1:])


def _fill_descriptors() -> None:
    """Occupy the numbers of closed standard streams: a file of a store that got one would be written to."""
    for fd in range(3):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest that is free


def _exit_code_of(err: OSError) -> int:
    """The exit code for a stdout that accepts no more, or for an error without a file name."""
    from rmqtool.cli.commands import writes

    changes = writes(sys.argv[1:])
    if isinstance(err, BrokenPipeError) and not changes:
        _stop_writing()  # `| head` has seen enough
        return 0
    text = os.strerror(err.errno or 0)
    if err.filename == _STDOUT:
        text = f"stdout: {text}"
        if changes:
            text += ": the command has done its work, but not all that it says of that could be written"
    from rmqtool.cli.startup.failing import say
    from rmqtool.errors import OutputLost

    _stop_writing()
    return say(OutputLost(text), sys.argv[1:])


def _stop_writing() -> None:
    from rmqtool.cli.startup.failing import stop_writing

    stop_writing()


def _complete() -> int:
    from rmqtool.cli.startup.completing import complete

    if complete():
        return 0
    from rmqtool.cli.framework.app import load, run

    load()
    return run([], {})


def _with_skipped(code: int) -> int:
    """The exit code of a command: 1 instead of 0 if parts of the store could not be read, which are then named."""
    if "rmqtool.cli.framework.opening" not in sys.modules:
        return code
    from rmqtool.cli.framework.opening import warn_of_skipped

    return 1 if warn_of_skipped() and not code else code


def _run(argv: list[str]) -> int:
    if "_RMQTOOL_COMPLETE" in os.environ:
        return _complete()
    from rmqtool.cli.commands import complete_words

    argv = complete_words(argv)
    if argv[:1] == ["help"]:
        argv = [*argv[1:], "--help"]
    if argv in (["--help"], ["-h"], ["--version"]):
        from rmqtool.cli.first_screen import TEXT, VERSION_TEXT

        sys.stdout.write(VERSION_TEXT + "\n" if argv == ["--version"] else TEXT)
        return 0
    if "-h" in argv or "--help" in argv:
        from rmqtool.cli.startup.help_screens import find_recorded

        text = find_recorded(argv)
        if text is not None:
            sys.stdout.write(text)
            return 0
    from rmqtool.cli.defaults import read
    from rmqtool.cli.startup import quick
    from rmqtool.errors import OutOfMemory, RmqError, UnreadableStore

    error: RmqError
    try:
        defaults = {} if {"-h", "--help", "--version"} & set(argv) else read()
        call = quick.parse(argv, defaults)
        if call is not None:
            function, arguments, options = call
            return _with_skipped(function(*arguments, **options))
        from rmqtool.cli.startup.usage_errors import check_line

        check_line(argv)
        from rmqtool.cli.framework.app import run

        return _with_skipped(run(argv, defaults))
    except RmqError as err:
        error = err
    except OSError as err:
        if err.filename in (None, _STDOUT):
            raise
        error = UnreadableStore(f"{err.filename}: {os.strerror(err.errno or 0)}")
    except MemoryError as err:
        error = OutOfMemory(f"out of memory: {err}" if str(err) else "out of memory")
    from rmqtool.cli.startup.failing import say

    return say(error, argv)


if __name__ == "__main__":
    main()
