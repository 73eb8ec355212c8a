"""Entry point of the command ``rmqtool``: as little as possible before it is known what is asked."""

import os
import sys


def main() -> None:
    """Run the command line and exit with its code."""
    # NumPy's library for matrices would start threads, which wait for work by counting; nobody has any for them
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by whoever started this process
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 - as long as the process
        # topics and bodies are UTF-8 whatever the terminal's locale says, and may be malformed
        getattr(sys, name).reconfigure(encoding="utf-8", errors="backslashreplace")
    if len(sys.argv) > 2:  # a command and something that it looks at
        from rmqtool.cli.bus_error import arm

        arm()
    try:
        code = _run(sys.argv[1:])
        sys.stdout.flush()
    except BrokenPipeError:
        code = _stop_writing(0)  # `| head` has seen enough
    except OSError as err:
        sys.stderr.write(f"error: stdout: {os.strerror(err.errno or 0)}\n")
        code = _stop_writing(3)
    except KeyboardInterrupt:
        code = _stop_writing(130)
    sys.exit(code)


def _stop_writing(code: int) -> int:
    """What is still buffered must not fail, or appear, at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return code


def _run(argv: list[str]) -> int:
    if argv == ["--help"]:
        from rmqtool.cli.help import TEXT

        sys.stdout.write(TEXT)
        return 0
    from rmqtool.cli import quick
    from rmqtool.errors import RmqError

    call = quick.parse(argv)
    try:
        if call is not None:
            function, arguments, options = call
            return function(*arguments, **options)
        from rmqtool.cli.app import run

        return run(argv)
    except RmqError as err:
        return _say(str(err), err.exit_code)
    except OSError as err:
        if err.filename is None:
            raise  # stdout, which has no name
        return _say(f"{err.filename}: {os.strerror(err.errno or 0)}", 3)


def _say(error: str, code: int) -> int:
    from rmqtool.cli.output import note

    sys.stdout.flush()
    note(f"error: {error}")
    return code


if __name__ == "__main__":
    main()
