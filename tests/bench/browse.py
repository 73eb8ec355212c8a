"""Start of ``browse`` at a terminal of 80x24: seconds until a store's topics are on the screen, with a limit of 0.4 s.

Run as ``python -m tests.bench.browse``. Beside it stands a program of the same library, Textual, that shows one line.
"""

import os
import sys
import tempfile
import time
from pathlib import Path

from tests import goldens
from tests.cli.live_terminal import Terminal

LIMIT = 0.4  # s
RUNS = 10
_BARE = """\
from textual.app import App
from textual.widgets import Static

class Bare(App):
    def compose(self):
        yield Static("Orders")

    def on_key(self):
        self.exit()

Bare().run()
"""


def measure(*command: str) -> tuple[float, float]:
    """(seconds until a topic is shown, processor seconds of the whole process): the least of several runs."""
    shown, processor = [], []
    for _ in range(RUNS):
        began = time.perf_counter()
        terminal = Terminal(*command[1:], program=command[:1])
        terminal.wait("Orders")
        shown.append(time.perf_counter() - began)
        terminal.type("q")
        usage = os.wait4(terminal.process.pid, 0)[2]
        processor.append(usage.ru_utime + usage.ru_stime)
    return min(shown), min(processor)


def main() -> None:
    """Print the times; exit code 1 if the limit is exceeded."""
    with tempfile.TemporaryDirectory() as folder:
        store = goldens.unpack("broker", Path(folder))
        ours = measure(str(Path(sys.executable).with_name("rmqtool")), "browse", str(store))
        bare = measure(sys.executable, "-c", _BARE)
    for name, (shown, processor) in (("browse", ours), ("Textual alone", bare)):
        print(f"{name:14} {shown:6.3f} s, {processor:6.3f} s of the processor")
    print(f"ratio          {ours[0] / bare[0]:6.2f}")
    sys.exit(1 if ours[0] > LIMIT else 0)


if __name__ == "__main__":
    main()
