"""Write the manual's page ``settings`` from the data of all releases: ``python -m tests.settings_page``."""

import json
from functools import cache
from pathlib import Path
from typing import Any

from rmqtool.store.config.settings import FIRST_OF, classes_of

PATH = Path(__file__).parents[1] / "rmqtool" / "manual" / "settings.md"
HEAD = """\
# Settings of a broker

Every setting that a broker's properties file may have, since when, and its default.

These are the settings that 4.9.8, 5.3.3, 5.4.0, 5.5.0 and 5.5.1 know; `since` is the first of these. 5.5.1 has no
`enableLiteEventMode` any more. `check --broker-conf FILE` names the lines that a broker ignores, and the setting that a
misspelt name most likely means; `--engine 5.5` checks against another release.

A default that depends on the machine is `-`. Where releases differ, each change is named.

With `rocksdbCQDoubleWriteEnable=true` a 5.5.0 broker writes its queues to files and to RocksDB. It starts only if
`combineCQUseRocksdbForLmq=true` is set, too: with the default it writes "rocksdbCQ is not ready for LMQ" to its log
`lite.log`, stops again, and ends with exit code 253, whatever `useSeparateStorePathForRocksdbCQ` is.

`python -m tests.interop.broker_settings` reads the data out of the classes; `python -m tests.settings_page` writes
this page.
"""


@cache
def since_of(name: str) -> str | None:
    """The first of the releases that know a setting; None where none does."""
    tables = ((release, classes_of(release).values()) for release in FIRST_OF)
    return next((release for release, classes in tables if any(name in settings for settings in classes)), None)


def page() -> str:
    """The whole page."""
    parts = [HEAD]
    tables = {release: classes_of(release) for release in FIRST_OF}
    names = dict.fromkeys(name for classes in tables.values() for name in classes)
    for name in names:
        settings = sorted({setting for classes in tables.values() for setting in classes.get(name, {})})
        parts += [f"## {name.removeprefix('org.apache.rocketmq.')}\n", "| setting | type | since | default |"]
        parts.append("|---|---|---|---|")
        for setting in settings:
            of_release = {
                release: classes[name][setting]
                for release, classes in tables.items()
                if setting in classes.get(name, {})
            }
            kind = next(iter(of_release.values()))[0]
            parts.append(f"| `{setting}` | {kind} | {since_of(setting)} | {_default(of_release)} |")
        parts.append("")
    return "\n".join(parts)


def _default(of_release: dict[str, list[Any]]) -> str:
    """The default of the first release, and where it changed."""
    before: list[str] = []
    for release, (_kind, value) in of_release.items():
        text = "-" if value is None else f"`{json.dumps(value, ensure_ascii=False).replace('|', chr(92) + '|')}`"
        if not before:
            before = [text, text]
        elif text != before[0]:
            before = [text, f"{before[1]}; {release}: {text}"]
    return before[1]


if __name__ == "__main__":
    PATH.write_text(page(), encoding="utf-8")
