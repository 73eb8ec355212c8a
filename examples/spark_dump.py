"""The dump as a Spark job, for spark-submit: it runs where spark-submit says.

Usage: spark-submit [--master ...] examples/spark_dump.py STORE OUT
"""

import json
import sys

from rmqtool import DumpOptions, dump_to_parquet


def main(store: str, out: str) -> int:
    report = dump_to_parquet(store, out, DumpOptions(partition_by=("topic",), split_bytes=64 << 20))
    print(json.dumps(report.to_dict(), indent=1))
    return 1 if report.damaged else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:3]) if len(sys.argv) == 3 else __doc__)
