"""Clients in languages other than Java: a program in each produces and consumes, and prints the result.

``python -m tests.interop.languages`` runs all of them against our broker with both releases' rules, including Rust,
whose build takes minutes.
"""

import asyncio
import fcntl
import os
import shutil
import subprocess
import sys
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from formats.remoting.codes import RequestCode
from formats.remoting.frame import Command
from rmqtool.remoting.client import open_connection
from tests.interop import engine
from tests.interop.serving import Serving

_TOPIC = {
    "topic": "Spoken", "defaultTopic": "TBW102", "readQueueNums": "4", "writeQueueNums": "4", "perm": "6",
    "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false",
}  # fmt: skip


class Language(NamedTuple):
    """How to build and run a program in its directory.

    Attributes:
        build: command that fetches the client and builds the program.
        run: command that runs it; name server and number of messages are appended.
        wanted: expected output with 40 messages.
    """

    build: tuple[str, ...]
    run: tuple[str, ...]
    wanted: str


# half of the messages have the tag that is asked for, the Go program's batch of 10 too; "m0" is refused once
LANGUAGES = {
    "go": Language(("go", "build", "-o", "client", "."), ("./client",), "sent 50\nseen 30 m0 2\n"),
    "node": Language(
        ("npm", "install", "--no-package-lock", "--no-audit", "--no-fund"),
        ("node", "main.js"),
        "sent 40\nseen 20 m0 2\n",
    ),
    "cpp": Language(
        (sys.executable, "-m", "pip", "install", "--quiet", "--target", ".", "--requirement", "requirements.txt"),
        (sys.executable, "main.py"),
        "sent 40\nseen 20 m0 2\n",
    ),
    "rust": Language(("cargo", "build", "--quiet"), ("target/debug/client",), "sent 40\nseen 40\n"),
}


@cache
def folder(name: str) -> Path:
    """The directory of a language's program, built on first use into the cache.

    Raises:
        Unavailable: the language is not installed, or its client cannot be fetched.
    """
    return built(name, Path(__file__).parent / name, LANGUAGES[name].build)


def built(name: str, sources: Path, command: tuple[str, ...]) -> Path:
    """A copy of a program's sources in the cache, after the command that builds it.

    Raises:
        Unavailable: the language is not installed, or its client cannot be fetched.
    """
    if shutil.which(command[0]) is None:
        raise engine.Unavailable(f"{command[0]} is not on the PATH")
    digest = sha256(b"".join(path.read_bytes() for path in sorted(sources.iterdir()))).hexdigest()[:16]
    root = engine._cache_root()
    root.mkdir(parents=True, exist_ok=True)
    build = root / f"{name}-{digest}"
    with open(root / f".{name}-lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (build / ".built").exists():
            shutil.rmtree(build, ignore_errors=True)
            shutil.copytree(sources, build)
            run = subprocess.run(
                command, cwd=build, capture_output=True, text=True, check=False, timeout=600,
                env={**os.environ, "CGO_ENABLED": "0"},
            )  # fmt: skip
            if run.returncode:
                raise engine.Unavailable(f"its client for {name} cannot be built: {run.stderr.strip()[-300:]}")
            (build / ".built").touch()
    return build


def run(name: str, namesrv: str, count: int = 40) -> tuple[str, str]:
    """Run the program; returns its output and log."""
    command = [*LANGUAGES[name].run, namesrv, str(count)]
    result = subprocess.run(command, cwd=folder(name), capture_output=True, text=True, timeout=180, check=False)
    return result.stdout, result.stderr


async def _make_topic(address: str) -> None:
    host, _, port = address.rpartition(":")
    async with open_connection(host, int(port)) as connection:
        answer = await connection.call(Command(RequestCode.UPDATE_AND_CREATE_TOPIC, fields=_TOPIC), 30)
        assert answer.code == 0


def judge(name: str, release: str, store: Path) -> None:
    """Run a language's program on a new store of ours.

    Raises:
        AssertionError: it received something else than was sent, or the server logged an error.
    """
    with Serving(store, "--create", "--engine", release) as serving:
        asyncio.run(_make_topic(serving.broker))
        output, logged = run(name, serving.namesrv)
        assert output == LANGUAGES[name].wanted, output + logged[-3000:]
        code, told = serving.end()
    assert code == 0
    assert "ERROR" not in told, told
    assert "Traceback" not in told, told
