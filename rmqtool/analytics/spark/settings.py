"""Settings and environment variables for starting Spark, and a SPARK_HOME that starts faster than PySpark's own."""

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
_SOCKET_PATH = 103  # maximum path length in bytes; macOS has the lowest limit
_LOG_CONFIG = Path(__file__).with_name("log4j2.properties")
# Settings that a user made for other programs must not turn our classic session into a Connect client.
NOT_CONNECT = {"SPARK_REMOTE": None, "SPARK_CONNECT_MODE_ENABLED": None, "SPARK_API_MODE": None}


def settings_of(
    work_dir: str, own: Mapping[str, str], *, local: bool, brief: bool, java_options: Sequence[str] = ()
) -> dict[str, str]:
    """Return the Spark settings by name.

    Args:
        work_dir: directory for files of Spark.
        own: settings that override ours.
        local: Spark runs on this machine only.
        brief: a fast start matters more than the JVM's later speed.
        java_options: additional JVM options.
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
        "spark.hadoop.parquet.page.verify-checksum.enabled": "true",  # by default they are written but not verified
        "spark.jars.ivy": os.path.join(work_dir, "ivy"),  # its default fails for a user without a home
        "spark.driver.extraJavaOptions": " ".join([*java, *map(_quote, [*java_options, temporary])]),
    }
    if local:
        settings |= {
            "spark.driver.memory": "1g" if brief else "2g",
            "spark.sql.shuffle.partitions": str(os.cpu_count() or 1),
            # over TCP, small messages wait for acknowledgements delayed by 40 ms, twice per task
            "spark.python.unix.domain.socket.enabled": str(has_unix_sockets(work_dir)).lower(),
            "spark.python.unix.domain.socket.dir": work_dir,
        }
    return settings | dict(own)


def has_unix_sockets(directory: str) -> bool:
    """Return whether paths of Spark's sockets in a directory are short enough."""
    return hasattr(socket, "AF_UNIX") and len(os.fsencode(directory)) + _SOCKET_NAME <= _SOCKET_PATH


def _quote(option: str) -> str:
    return f'"{option}"'


def environment_of(java: Java, work_dir: str, *, local: bool) -> dict[str, str | None]:
    """Return the changes to our environment for Spark, also needed while the context is created."""
    changes: dict[str, str | None] = {**NOT_CONNECT, "JAVA_HOME": java.home}
    # spark-class first starts a small JVM that only builds a command line
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
    """Return whether our user id has a name. Containers may use any id, and Hadoop does not start without one."""
    try:
        import pwd

        return bool(pwd.getpwuid(os.geteuid()).pw_name)
    except (ImportError, KeyError):
        return False


def apply_changes(changes: Mapping[str, str | None]) -> dict[str, str]:
    """Return our environment with changes applied; None removes a variable."""
    merged: dict[str, str | None] = {**os.environ, **changes}
    return {name: value for name, value in merged.items() if value is not None}


def _installed_home() -> str:
    import pyspark

    return str(Path(pyspark.__file__).parent)


def _lean_home() -> str:
    """Return a SPARK_HOME without ``python/lib/pyspark.zip``.

    Spark puts that archive first on the workers' path, and importing from it is several times slower than from the
    installed package, which is identical.
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
    """Return PYTHONPATH for the workers: directories they could not find otherwise, and the current value."""
    import py4j
    import pyspark

    import formats
    from rmqtool import version

    modules: tuple[Any, ...] = (version, formats, pyspark, py4j)
    roots = dict.fromkeys(os.path.dirname(os.path.dirname(os.path.abspath(m.__file__))) for m in modules)
    # a site-packages directory on PYTHONPATH would precede the standard library
    usual = {os.path.realpath(sysconfig.get_path(name)) for name in ("purelib", "platlib")}
    parts = [root for root in roots if os.path.realpath(root) not in usual]
    return os.pathsep.join(parts + [part for part in [os.environ.get("PYTHONPATH", "")] if part])
