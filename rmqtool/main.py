"""Entry point of the command ``rmqtool``: as little as possible before it is known what is asked."""

import os
import sys


def main() -> None:
    """Run the command line and exit with its code."""
    for stream in (sys.stdout, sys.stderr):
        # topics and bodies are UTF-8 whatever the terminal's locale says, and may be malformed
        stream.reconfigure(encoding="utf-8", errors="backslashreplace")  # type: ignore[union-attr]
    try:
        code = _run(sys.argv[1:])
        sys.stdout.flush()
    except BrokenPipeError:
        # `| head` has seen enough; what is still buffered must not fail at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        code = 0
    except KeyboardInterrupt:
        code = 130
    sys.exit(code)


def _run(argv: list[str]) -> int:
    if argv == ["--help"]:
        from rmqtool.cli.help import TEXT

        sys.stdout.write(TEXT)
        return 0
    from rmqtool.cli import quick

    call = quick.parse(argv)
    if call is not None:
        from rmqtool.errors import RmqError

        function, arguments, options = call
        try:
            return function(*arguments, **options)
        except RmqError as err:
            sys.stdout.flush()
            sys.stderr.write(f"error: {err}\n")
            return err.exit_code
    from rmqtool.cli.app import run

    return run(argv)


if __name__ == "__main__":
    main()
