"""Call classes of the real RocketMQ client 4.9.8.

The Java program in ``client_judge/`` does the calls; it is built with Maven once into the cache directory of the judge
of :mod:`tests.interop.engine`, and then serves requests over its stdin and stdout.
"""

import fcntl
import json
import os
import shutil
import subprocess
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any, Self

from tests.interop import engine

_SOURCES = Path(__file__).with_name("client_judge")
VERSION = "4.9.8"


@cache
def available() -> str | None:
    """Why the client is unavailable here, or None. Builds the judge."""
    try:
        _classpath()
    except engine.Unavailable as err:
        return str(err)
    return None


def _classpath() -> str:
    return built(_SOURCES, f"client-{VERSION}")


@cache
def built(sources: Path, name: str, *options: str) -> str:
    """The class path of a Maven project, built on first use into the cache under ``name``, with options for Maven."""
    files = sorted(path for path in sources.rglob("*") if path.is_file() and "target" not in path.parts)
    digest = sha256(b"".join(path.read_bytes() for path in files)).hexdigest()[:16]
    root = engine._cache_root()
    root.mkdir(parents=True, exist_ok=True)
    build = root / f"{name}-{digest}"
    with open(root / ".client-lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # test workers come here at the same time
        try:
            return engine._built_classpath(build)
        except FileNotFoundError:
            _build(sources, build, options)
            return engine._built_classpath(build)


def _build(sources: Path, build: Path, options: tuple[str, ...]) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise engine.Unavailable("Maven (mvn) is not on the PATH")
    engine._java_tool("javac")
    shutil.rmtree(build, ignore_errors=True)
    shutil.copytree(sources, build, ignore=shutil.ignore_patterns("target"))
    command = [maven, "-q", "-B", *options, "compile", "dependency:build-classpath"]
    command += ["-Dmdep.outputFile=target/classpath.txt", "-Dmdep.includeScope=runtime"]
    try:
        run = subprocess.run(
            command, cwd=build, capture_output=True, text=True, timeout=engine._BUILD_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise engine.Unavailable(f"building took more than {engine._BUILD_SECONDS} s") from None
    if run.returncode:
        output = run.stdout + run.stderr
        if any(sign in output for sign in (*engine._FETCH_FAILURES, *engine._OLD_JDK)):
            raise engine.Unavailable("Maven cannot fetch the client, or the JDK is too old")
        raise engine.BuildFailed(output)


class Client:
    """One JVM with the client's classes."""

    def __init__(self) -> None:
        options = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        command = [engine._java_tool("java"), *options, "-cp", _classpath(), "judge.Client"]
        self._jvm = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "TZ": "UTC"},
            text=True,
            encoding="utf-8",
        )

    def ask(self, command: str, **request: Any) -> dict[str, Any]:
        """Send a request to the judge; exceptions of the client are answers with ``error``."""
        assert self._jvm.stdin is not None
        assert self._jvm.stdout is not None
        self._jvm.stdin.write(json.dumps({"command": command, **request}) + "\n")
        self._jvm.stdin.flush()
        answer: dict[str, Any] = json.loads(self._jvm.stdout.readline())
        return answer

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._jvm.communicate()  # its stdin ends, and so does it
