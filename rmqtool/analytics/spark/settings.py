"""What Spark is started with: settings, environment variables, and a home that starts faster than PySpark's own."""

import hashlib
import os
import socket
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rmqtool.analytics.local.cache import cache_dir
from rmqtool.analytics.spark.java import Java

_SOCKET_NAME = len("/.01234567-89ab-cdef-0123-456789abcdef.sock")
_SOCKET_PATH = 103  # bytes of a path: macOS has the fewest
_LOG_CONFIG = Path(__file__).with_name("log4j2.properties")
# A user's own settings for other programs must not turn our classic session into a Connect client.
NOT_CONNECT = {"SPARK_REMOTE": None, "SPARK_CONNECT_MODE_ENABLED": None, "SPARK_API_MODE": None}


def settings_of(
    work_dir: str, own: Mapping[str, str], *, local: bool, brief: bool, java_options: Sequence[str] = ()
) -> dict[str, str]:
    """Spark settings by name.

    Args:
        work_dir: for what Spark puts down.
        own: settings that win over ours.
        local: whether Spark runs on this machine alone.
        brief: whether a fast start matters more than what the JVM does later.
        java_options: for the JVM, beside our own.
    """
    temporary = f"-Djava.io.tmpdir={work_dir}"
    java = [f"-Dlog4j2.configurationFile={_LOG_CONFIG.as_uri()}", "-XX:+UseSerialGC"]
    java += ["-Darrow.enable_unsafe_memory_access=true", "-Darrow.enable_null_check_for_get=false"]
    if brief:
        java += ["-XX:TieredStopAtLevel=1", "-Xshare:auto"]
    settings = {
        "spark.app.name": "rmqtool",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.parquet.compression.codec": "zstd",
        "spark.hadoop.parquet.page.verify-checksum.enabled": "true",  # by default only what writes minds them
        "spark.jars.ivy": os.path.join(work_dir, "ivy"),  # its default fails for a user without a home
        "spark.driver.extraJavaOptions": " ".join([*java, *map(_quote, [*java_options, temporary])]),
    }
    if local:
        settings |= {
            "spark.driver.memory": "1g" if brief else "2g",
            "spark.sql.shuffle.partitions": str(os.cpu_count() or 1),
            # over TCP, small parts wait for acknowledgements that come 40 ms late, twice in each task
            "spark.python.unix.domain.socket.enabled": str(has_unix_sockets(work_dir)).lower(),
            "spark.python.unix.domain.socket.dir": work_dir,
        }
    return settings | dict(own)


def has_unix_sockets(directory: str) -> bool:
    """Whether sockets of Spark's can have paths in a directory."""
    return hasattr(socket, "AF_UNIX") and len(os.fsencode(directory)) + _SOCKET_NAME <= _SOCKET_PATH


def _quote(option: str) -> str:
    return f'"{option}"'


def environment_of(java: Java, work_dir: str, *, local: bool) -> dict[str, str | None]:
    """What differs from our own environment in Spark's, and here while the context is made."""
    changes: dict[str, str | None] = {**NOT_CONNECT, "JAVA_HOME": java.home}
    # spark-class starts a small JVM first that only puts a command line together
    changes["SPARK_LAUNCHER_OPTS"] = os.environ.get("SPARK_LAUNCHER_OPTS", "-XX:+UseSerialGC -XX:TieredStopAtLevel=1")
    if local:
        changes |= {
            "SPARK_HOME": _lean_home(),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOCAL_DIRS": work_dir,
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            "PYTHONPATH": _python_path(),
        }
        if not _has_name():
            changes |= {"HADOOP_USER_NAME": "rmqtool", "SPARK_USER": "rmqtool"}
    elif "SPARK_HOME" not in os.environ:
        changes["SPARK_HOME"] = _installed_home()
    return changes


def _has_name() -> bool:
    """Whether the system knows who we are. Containers run under any user id; without a name Hadoop refuses to start."""
    try:
        import pwd

        return bool(pwd.getpwuid(os.geteuid()).pw_name)
    except (ImportError, KeyError):
        return False


def apply_changes(changes: Mapping[str, str | None]) -> dict[str, str]:
    """Our own environment with changes; None takes a variable away."""
    merged: dict[str, str | None] = {**os.environ, **changes}
    return {name: value for name, value in merged.items() if value is not None}


def _installed_home() -> str:
    import pyspark

    return str(Path(pyspark.__file__).parent)


def _lean_home() -> str:
    """A SPARK_HOME without ``python/lib/pyspark.zip``.

    Spark puts that archive first on the workers' path, and importing from it takes several times as long as from the
    installed package, which is the same.
    """
    import pyspark

    full = _installed_home()
    try:
        key = hashlib.sha256(f"{full}\0{pyspark.__version__}".encode()).hexdigest()[:16]
        lean = cache_dir("spark", key)
        for name in ("bin", "jars", "sbin"):
            link, target = os.path.join(lean, name), os.path.join(full, name)
            if not os.path.islink(link) or os.readlink(link) != target:
                temporary = os.path.join(lean, f".{name}-{os.getpid()}")
                os.symlink(target, temporary)
                os.replace(temporary, link)
    except OSError:
        return full
    return lean


def _python_path() -> str:
    """PYTHONPATH for the workers: what they could not find by themselves, and what it was."""
    import py4j
    import pyspark

    import formats
    from rmqtool import version

    modules: tuple[Any, ...] = (version, formats, pyspark, py4j)
    roots = dict.fromkeys(os.path.dirname(os.path.dirname(os.path.abspath(m.__file__))) for m in modules)
    # a site-packages directory given twice would come before the standard library
    usual = {os.path.realpath(sysconfig.get_path(name)) for name in ("purelib", "platlib")}
    parts = [root for root in roots if os.path.realpath(root) not in usual]
    return os.pathsep.join(parts + [part for part in [os.environ.get("PYTHONPATH", "")] if part])
