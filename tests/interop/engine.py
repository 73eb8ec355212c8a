"""Run the real RocketMQ store engine on a store directory.

The Java program in ``judge/`` does that; it is built with Maven once per engine version into a cache directory
(``$RMQTOOL_JUDGE_CACHE``, else ``~/.cache/rmqtool-judge``) and then serves requests over its stdin and stdout:

    with Engine("4.9.8") as engine:
        engine.write(store, [{"topic": "T", "body": b"hello", "tags": "a"}])
        seen = engine.open(store, keys=[("T", "k1")])

Opening a store with the engine changes it, so use copies (``cp -a``: file times matter for expiry).
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import gzip
import hashlib
import json
import os
import shutil
import subprocess
import tarfile
import tempfile
import threading
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import IO, Any, Self

VERSIONS = ("4.9.8", "5.3.3")
NEWEST = "5.5.0"  # judges stores alone, so that it is built where those tests run
LATEST = "5.5.1"  # of which Maven Central has the store, remoting, common and the broker
ALL = (*VERSIONS, "5.4.0", NEWEST, LATEST)
_JUDGE = Path(__file__).with_name("judge")
_REPOSITORY = Path(__file__).parents[2]
_BUILD_SECONDS = 600
_ANSWER_SECONDS = 120

# The engine unmaps and measures its files through internals of the JDK.
_JVM_OPTIONS = (
    "-Xmx1500m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-opens=java.base/jdk.internal.ref=ALL-UNNAMED",
    "-Drocketmq.broker.diskSpaceWarningLevelRatio=1.0",
    "-Drocketmq.broker.diskSpaceCleanForciblyRatio=1.0",
)
# How Maven says that it cannot fetch something, as opposed to: the judge does not compile.
_FETCH_FAILURES = ("Could not transfer", "Could not find artifact", "could not be resolved", "offline mode")
_OLD_JDK = ("release version 11 not supported", "invalid flag: --release", "invalid target release")
_OPTIONS = {"startTimeoutMillis", "deliver", "lingerMillis"}


class Unavailable(Exception):
    """This machine cannot run the engine: no JDK, no Maven, or nothing to fetch the engine from."""


class BuildFailed(Exception):
    """The judge does not build although everything it needs is available."""


@cache
def available(version: str | None = None) -> str | None:
    """Why the engine (of one version or of all) is unavailable here, or None. Builds the judge."""
    if version is None:
        return next(filter(None, map(available, VERSIONS)), None)
    try:
        classpath(version)
    except Unavailable as e:
        return str(e)
    return None


@cache
def classpath(version: str) -> str:
    """The class path of the judge for an engine version, built on first use."""
    if version not in ALL:
        raise ValueError(f"no judge for engine {version!r}, only for {', '.join(ALL)}")
    _java_tool("java")
    root = _cache_root()
    build = root / f"{version}-{_fingerprint()}"
    root.mkdir(parents=True, exist_ok=True)
    with open(root / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # test workers come here at the same time
        try:
            return _built_classpath(build)
        except FileNotFoundError:  # not built yet, or a jar was cleaned away
            _build(version, build)
            return _built_classpath(build)


def _built_classpath(build: Path) -> str:
    jars = (build / "target/classpath.txt").read_text().strip().split(os.pathsep)
    for jar in jars:
        if not Path(jar).is_file():
            raise FileNotFoundError(jar)
    return os.pathsep.join([str(build / "target/classes"), *jars])


def _build(version: str, build: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise Unavailable("Maven (mvn) is not on the PATH")
    _java_tool("javac")
    shutil.rmtree(build, ignore_errors=True)
    shutil.copytree(_JUDGE, build, ignore=shutil.ignore_patterns("target"))
    command = [maven, "-q", "-B", f"-Pv{version[0]}", f"-Drocketmq.version={version}", "compile"]
    command += ["dependency:build-classpath", "-Dmdep.outputFile=target/classpath.txt", "-Dmdep.includeScope=runtime"]
    try:
        run = subprocess.run(command, cwd=build, capture_output=True, text=True, timeout=_BUILD_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise Unavailable(f"building the judge for {version} took more than {_BUILD_SECONDS} s") from None
    if run.returncode:
        output = run.stdout + run.stderr
        if any(sign in output for sign in _FETCH_FAILURES):
            raise Unavailable(f"Maven cannot fetch the {version} engine")
        if any(sign in output for sign in _OLD_JDK):
            raise Unavailable("the JDK is older than 11")
        raise BuildFailed(output)


def _cache_root() -> Path:
    if own := os.environ.get("RMQTOOL_JUDGE_CACHE"):
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rmqtool-judge"


def _fingerprint() -> str:
    digest = hashlib.sha256()
    for source in sorted(p for p in _JUDGE.rglob("*") if p.is_file() and "target" not in p.parts):
        digest.update(source.relative_to(_JUDGE).as_posix().encode() + b"\0" + source.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def _java_tool(name: str) -> str:
    home = os.environ.get("JAVA_HOME")
    if home and (tool := shutil.which(name, path=str(Path(home, "bin")))):
        return tool
    if tool := shutil.which(name):
        return tool
    raise Unavailable(f"no JDK: {name} is neither in JAVA_HOME nor on the PATH")


class Engine:
    """One JVM with one engine version; started by the first request, and again after a failure.

    Every method returns the judge's answer. An error inside the engine is an answer with ``error``, in addition to
    everything found before; this includes an engine that hangs or kills the JVM.

    All accept these options: ``timeout`` for the whole answer (seconds), ``startTimeoutMillis`` after which ``start()``
    counts as hanging, ``lingerMillis`` to stay open before closing, and ``deliver=True`` to let 4.9.8 deliver due
    delayed messages meanwhile, which the judge prevents otherwise.
    """

    def __init__(self, version: str) -> None:
        self.version = version
        self._classpath = classpath(version)
        self._java = _java_tool("java")
        self._jvm: subprocess.Popen[bytes] | None = None
        self._log: IO[bytes] | None = None
        self._home = tempfile.TemporaryDirectory(prefix="rmqtool-judge-")  # where the engine puts logs of its own

    def open(
        self,
        store: Path,
        config: Mapping[str, Any] | None = None,
        *,
        start: bool = True,
        messages: bool = True,
        keys: Iterable[tuple[str, str]] = (),
        times: Iterable[tuple[str, int, int]] = (),
        gets: Iterable[tuple[str, int, int, int]] = (),
        **options: Any,
    ) -> dict[str, Any]:
        """Load the store, start it by default, read it, and close it cleanly.

        ``keys`` are (topic, key), ``times`` (topic, queue, timestamp), ``gets`` (topic, queue, offset, most messages).
        The answer has loadOk, loadMillis, afterLoad; with start also startMillis, afterStart and dispatchBehind; and
        messages, queries, offsetByTime and getMessage as rows like those of the golden stores.
        """
        return self._ask(
            "open",
            store,
            config,
            options,
            start=start,
            messages=messages,
            keys=[{"topic": t, "key": k} for t, k in keys],
            times=[{"topic": t, "queueId": q, "timestamp": ms} for t, q, ms in times],
            gets=[{"topic": t, "queueId": q, "offset": at, "maxMsgNums": most} for t, q, at, most in gets],
        )

    def write(
        self,
        store: Path,
        messages: Sequence[Mapping[str, Any]],
        config: Mapping[str, Any] | None = None,
        *,
        kill: bool = False,
        **options: Any,
    ) -> dict[str, Any]:
        """Put messages into the store, then close it, or kill the JVM to leave a crashed store.

        A message has a topic and, optionally, queueId, body (bytes), tags, keys, properties, propertiesString, sysFlag,
        flag, bornTimestamp, bornHost and storeHost ("ip:port"), reconsumeTimes, preparedTransactionOffset, delayLevel,
        pauseMillis (wait before it); or batch, a list of messages that are stored as one batch. The answer has results
        (status, appendStatus, wroteOffset, logicsOffset, msgId ...) and the state afterwards.
        """
        return self._ask("write", store, config, options, puts=[_put(m) for m in messages], kill=kill)

    def step(self, step: str, store: Path, config: Mapping[str, Any] | None = None, **request: Any) -> dict[str, Any]:
        """Run one step of a broker's start, so that something else can happen in between.

        ``construct`` opens the file ``lock``; ``load`` recovers and deletes; ``start`` takes the lock (the answer has
        ``started``, or ``why`` not); ``put`` stores messages as :meth:`write` does; ``end`` closes.
        """
        if "puts" in request:
            request["puts"] = [_put(m) for m in request["puts"]]
        options = {name: request.pop(name) for name in (*_OPTIONS, "timeout") if name in request}
        return self._ask("step", store, config, options, step=step, **request)

    def compacted(
        self,
        store: Path,
        config: Mapping[str, Any] | None = None,
        *,
        gets: Iterable[tuple[str, int, int, int]] = (),
        **options: Any,
    ) -> dict[str, Any]:
        """Load and start 5.3.3 with its compaction, read compacted topics, and close.

        ``gets`` as for :meth:`open`. The answer has loadOk, and ``reads``: for each, status, next, min, max and (queue
        offset, checksum of the body) of each message; or ``error``, the engine's exception.
        """
        asked = [{"topic": t, "queueId": q, "offset": at, "maxMsgNums": most} for t, q, at, most in gets]
        return self._ask("compacted", store, config, options, gets=asked)

    def timers(
        self,
        store: Path,
        config: Mapping[str, Any] | None = None,
        *,
        puts: Sequence[Mapping[str, Any]] = (),
        start: bool = True,
        kill: bool = False,
        deliver_until: int = 0,
        **options: Any,
    ) -> dict[str, Any]:
        """Load store and timer of 5.3.3, start both by default, put messages as :meth:`write` does, and close.

        The answer has loadOk, timerOk, and ``timer``, the state after recovery: end of the timer log, next queue
        offset, read time, and every future slot with its units. Once started, the judge waits until everything is
        enqueued, and delivered up to a time in ms (``quiet`` says whether it was).
        """
        more = {"start": start, "kill": kill, "deliverUntil": deliver_until}
        return self._ask("timers", store, config, options, puts=[_put(m) for m in puts], **more)

    def dledger(self, store: Path, config: Mapping[str, Any], **options: Any) -> dict[str, Any]:
        """Recover the DLedger log of a member: 4.9.8 and 5.3.3 have DLedger 0.3.1.2, 5.5.0 has 0.3.2.

        ``config`` names dLegerSelfId, mappedFileSizeCommitLog and, if it is elsewhere, storePathDLedgerCommitLog. The
        answer has beginIndex, endIndex, endTerm, committedIndex, committedPosition, end and indexEnd (bytes); or
        ``error``, where the member does not start.
        """
        return self._ask("dledger", store, config, options)

    def bench(
        self,
        store: Path,
        count: int,
        config: Mapping[str, Any] | None = None,
        *,
        body_size: int = 1024,
        topics: int = 4,
        queues: int = 4,
        batch: int = 0,
        **options: Any,
    ) -> dict[str, Any]:
        """Fill the store with many messages; the answer has the durations of the puts, and with dispatch.

        ``batch`` is the number per put; batches are encoded before the clock starts, as by a client.
        """
        options.setdefault("timeout", 3600)
        sizes = {"bodySize": body_size, "topics": topics, "queues": queues, "batch": batch}
        return self._ask("bench", store, config, options, count=count, **sizes)

    def close(self) -> None:
        """End the JVM."""
        self._end()
        self._home.cleanup()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ask(
        self,
        command: str,
        store: Path,
        config: Mapping[str, Any] | None,
        options: Mapping[str, Any],
        **request: Any,
    ) -> dict[str, Any]:
        options = dict(options)
        seconds = options.pop("timeout", _ANSWER_SECONDS)
        if unknown := options.keys() - _OPTIONS:
            raise TypeError(f"no such option: {', '.join(sorted(unknown))}")
        settings = {name: _setting(value) for name, value in (config or {}).items()}
        request |= options | {"command": command, "store": str(Path(store).resolve()), "config": settings}
        line, ending = self._exchange(json.dumps(request).encode() + b"\n", seconds)
        answer = json.loads(line) if line else {"error": ending}
        if "error" in answer or request.get("kill"):
            self._end(kill="error" in answer)  # a store that was not closed would keep its lock, and its threads
        return answer

    def _exchange(self, request: bytes, seconds: float) -> tuple[bytes, str]:
        """The judge's answer line, or None and the reason."""
        jvm = self._jvm or self._begin()
        assert jvm.stdin is not None
        assert jvm.stdout is not None
        timer = threading.Timer(seconds, jvm.kill)
        timer.start()
        try:
            jvm.stdin.write(request)
            jvm.stdin.flush()
            line = jvm.stdout.readline()
        except BrokenPipeError:
            line = b""
        in_time = timer.is_alive()
        timer.cancel()
        if line or not in_time:
            return line, f"no answer within {seconds} s"
        return line, f"the JVM ended with {jvm.wait()}: {self._said()}"

    def _begin(self) -> subprocess.Popen[bytes]:
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  closed by _end
        command = [self._java, *_JVM_OPTIONS, f"-Duser.home={self._home.name}", "-cp", self._classpath, "judge.Main"]
        self._jvm = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, cwd=self._home.name
        )
        return self._jvm

    def _end(self, *, kill: bool = False) -> None:
        jvm, self._jvm = self._jvm, None
        log, self._log = self._log, None
        if jvm is not None:
            if kill:
                jvm.kill()
            with contextlib.suppress(BrokenPipeError):
                jvm.communicate()  # its stdin ends, and so does it
        if log is not None:
            log.close()

    def _said(self) -> str:
        assert self._log is not None
        self._log.seek(0)
        return self._log.read()[-2000:].decode(errors="replace")


def _setting(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _put(message: Mapping[str, Any]) -> dict[str, Any]:
    put = dict(message)
    if isinstance(put.get("body"), bytes | bytearray | memoryview):
        put["body"] = base64.b64encode(put["body"]).decode()
    if "batch" in put:
        put["batch"] = [_put(part) for part in put["batch"]]
    return put


# What the golden stores were written with besides the file sizes in their about.json.
_GOLDEN_EXTRA: dict[str, dict[str, Any]] = {
    "queue-ext": {"enableConsumeQueueExt": True, "mappedFileSizeConsumeQueueExt": 65536},
    "lmq": {"enableLmq": True, "enableMultiDispatch": True},
}


def golden_dir() -> Path | None:
    """The directory of the golden stores: the project's copies, else those beside the checkout, else None."""
    candidates = (_REPOSITORY / "tests/golden/stores", _REPOSITORY.parent / "shared/golden")
    return next((folder for folder in candidates if any(folder.glob("*/about.json"))), None)


def golden_cases() -> list[str]:
    """The names of the golden stores."""
    folder = golden_dir()
    return sorted(about.parent.name for about in folder.glob("*/about.json")) if folder else []


def golden_config(case: str) -> dict[str, Any]:
    """The engine settings with which a golden store was written."""
    about = json.loads((_golden(case) / "about.json").read_text())
    return about["config"] | _GOLDEN_EXTRA.get(case, {})


def golden_recovered(case: str) -> dict[str, Any] | None:
    """The engine's answer when it recovered a damaged or crashed golden store; None for clean ones."""
    path = _golden(case) / "recovered.json"
    return json.loads(path.read_text()) if path.exists() else None


def golden_rows(case: str, name: str) -> list[dict[str, Any]] | None:
    """The rows of a case's NDJSON file, named without suffixes; None if there is none."""
    packed, plain = _golden(case) / f"{name}.ndjson.gz", _golden(case) / f"{name}.ndjson"
    if packed.exists():
        data = gzip.decompress(packed.read_bytes())
    elif plain.exists():
        data = plain.read_bytes()
    else:
        return None
    return [json.loads(line) for line in data.split(b"\n") if line]


def golden_files(case: str) -> list[tuple[str, int]] | None:
    """Name and size of every file after the engine opened the store, as from :func:`files_in`."""
    path = _golden(case) / "files.txt"
    if not path.exists():
        return None
    rows = (line.split(" ", 1) for line in path.read_text().splitlines())
    return sorted((_file_name(name), int(size)) for size, name in rows)


def unpack_golden(case: str, folder: Path) -> Path:
    """Unpack a golden store below a folder, with its file times."""
    with tarfile.open(_golden(case) / "store.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    return folder / "store"


def files_in(store: Path) -> list[tuple[str, int]]:
    """Name and size of every file, sorted; index files, named by the clock, all get the same name."""
    files = (p for p in store.rglob("*") if p.is_file())
    return sorted((_file_name(p.relative_to(store).as_posix()), p.stat().st_size) for p in files)


def _file_name(name: str) -> str:
    return "index/*" if name.startswith("index/") else name


def _golden(case: str) -> Path:
    folder = golden_dir()
    if folder is None:
        raise FileNotFoundError("the golden stores are not here")
    return folder / case
