"""All languages against both releases: ``python -m tests.interop.languages [NAME ...]``."""

import sys
import tempfile
from pathlib import Path

from tests.interop import engine, languages


def main() -> int:
    """Run and print the results."""
    failed = 0
    for name in sys.argv[1:] or languages.LANGUAGES:
        for release in ("4.9", "5.3"):
            with tempfile.TemporaryDirectory(prefix="languages-") as made:
                try:
                    languages.judge(name, release, Path(made, "store"))
                    came = "well"
                except (AssertionError, engine.Unavailable) as err:
                    came, failed = str(err), failed + 1
            print(f"{name:6}  {release}  {came}", flush=True)
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main())
