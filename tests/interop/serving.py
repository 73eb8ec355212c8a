"""A store served by ``rmqtool serve`` in a separate process."""

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Self

NAME, CLUSTER = "lab-a", "LabCluster"


class Serving:
    """The process; as a context manager, it is ended at the end.

    Args:
        files: initial limit of open descriptors.

    Attributes:
        broker, namesrv: addresses.
    """

    def __init__(
        self,
        store: Path,
        *options: str,
        listen: str = "127.0.0.1:0",
        namesrv: str = "127.0.0.1:0",
        files: int | None = None,
    ) -> None:
        command = [sys.executable, "-m", "rmqtool.main", "serve", str(store), "--output", "json", "--name", NAME]
        command += ["--cluster", CLUSTER, "--listen", listen, "--namesrv-listen", namesrv, *options]
        if files is not None:
            command = ["sh", "-c", f'ulimit -S -n {files}; exec "$@"', "sh", *command]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise AssertionError(self.process.communicate()[1])
        told = json.loads(line)
        self.broker, self.namesrv = told["broker"], told["namesrv"]

    def end(self, how: signal.Signals = signal.SIGTERM) -> tuple[int, str]:
        """End it; returns its exit code and stderr."""
        self.process.send_signal(how)
        stderr = self.process.communicate(timeout=60)[1]
        return self.process.returncode, stderr

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self.process:  # closes its pipes
            self.process.kill()
