"""The main job on the sample store: recover it, query a key, dump it to Parquet through Spark, show the result.

Works on a copy in a temporary directory, which first suffers a power cut: only 100 bytes of its last record reached the
disk, and the broker had no time to remove its abort file.
"""

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

RMQTOOL = str(Path(sysconfig.get_path("scripts")) / "rmqtool")
SAMPLE = Path(__file__).resolve().parent / "store"


def run(*args: str, expect: int = 0) -> None:
    """One command as a shell would run it, shown before its output."""
    print(f"\n$ rmqtool {' '.join(args)}", flush=True)
    code = subprocess.run([RMQTOOL, *args], check=False).returncode
    if code != expect:
        sys.exit(f"exit code {code}, expected {expect}")


def power_cut(store: Path) -> None:
    """Zero all but 100 bytes of the last record, and leave an abort file."""
    from rmqtool import Store

    *_, last = Store(store).messages()
    log = max((store / "commitlog").iterdir())  # a file is named after the physical offset that it begins at
    with log.open("r+b") as file:
        file.seek(last.physical_offset - int(log.name) + 100)
        file.write(bytes(last.record.total_size - 100))
    (store / "abort").touch()


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="rmqtool-quickstart-") as directory:
        shutil.copytree(SAMPLE, Path(directory) / "store")
        os.chdir(directory)
        power_cut(Path("store"))
        run("recover", "store", "--dry-run", expect=1)  # 1: there is something to do
        run("recover", "store", "--yes")
        run("recover", "store", "--dry-run")  # 0: nothing is left to do
        run("query-key", "store", "Orders", "order-10", "--body", "utf8")
        run("dump-to-parquet", "store", "messages")
        show("messages")


def show(path: str) -> None:
    """Read the Parquet files back, with a library that knows nothing of RocketMQ."""
    import pyarrow.compute as pc
    import pyarrow.dataset as ds

    table = ds.dataset(path, format="parquet").to_table(columns=["topic", "bodyLength"])
    print(f"\n{path}: {table.num_rows} messages, {pc.sum(table['bodyLength'])} bytes of bodies", flush=True)
    grouped = table.group_by("topic").aggregate([("bodyLength", "count"), ("bodyLength", "sum")])
    for row in grouped.sort_by([("bodyLength_count", "descending")]).to_pylist():
        print(f"  {row['topic']:30} {row['bodyLength_count']:5} messages {row['bodyLength_sum']:8} bytes")


if __name__ == "__main__":
    main()
