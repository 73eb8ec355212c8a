"""Options that many commands share, said once."""

from enum import StrEnum
from typing import Annotated

import typer


class Output(StrEnum):
    """Forms of a result."""

    table = "table"
    json = "json"
    ndjson = "ndjson"
    csv = "csv"


class Body(StrEnum):
    """Forms of a message body."""

    auto = "auto"
    utf8 = "utf8"
    json = "json"
    hex = "hex"
    base64 = "base64"
    none = "none"


StoreDir = Annotated[str, typer.Argument(metavar="STORE", help="Store directory (storePathRootDir).")]
OutputOption = Annotated[Output, typer.Option("--output", "-o", help="Form of the result on stdout.")]
BodyOption = Annotated[
    Body, typer.Option("--body", help="How to show bodies: auto is text where it is UTF-8, else base64.")
]
BrokerConfOption = Annotated[
    str | None,
    typer.Option("--broker-conf", metavar="FILE", help="The broker's properties file, for its file sizes and paths."),
]
LimitOption = Annotated[int | None, typer.Option("--limit", min=1, help="Stop after this many rows.")]
SinceOption = Annotated[
    str | None, typer.Option("--since", metavar="TIME", help="Stored at or after this time (ms, ISO 8601, -48h, now).")
]
UntilOption = Annotated[str | None, typer.Option("--until", metavar="TIME", help="Stored before this time.")]
TopicOption = Annotated[
    list[str] | None, typer.Option("--topic", "-t", metavar="GLOB", help="Only these topics; may be repeated.")
]
GroupOption = Annotated[
    list[str] | None, typer.Option("--group", "-g", metavar="GLOB", help="Only these groups; may be repeated.")
]
QueueOption = Annotated[list[int] | None, typer.Option("--queue", "-q", help="Only these queue ids; may be repeated.")]
TagOption = Annotated[list[str] | None, typer.Option("--tag", help="Only messages with one of these tags.")]
KeyOption = Annotated[list[str] | None, typer.Option("--key", help="Only messages with one of these keys.")]
OffsetOption = Annotated[
    str | None, typer.Option("--offset", metavar="A:B", help="Physical offsets from A up to, not including, B.")
]
QueueOffsetOption = Annotated[
    str | None, typer.Option("--queue-offset", metavar="A:B", help="Queue offsets from A up to, not including, B.")
]
ScanOption = Annotated[bool, typer.Option("--scan", help="Go through the whole log when the index has no answer.")]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do it without asking.")]
DryRunOption = Annotated[bool, typer.Option("--dry-run", "-n", help="Show the plan and change nothing.")]
BackupOption = Annotated[
    str | None,
    typer.Option("--backup", metavar="DIR", help="Keep what is replaced here instead of in STORE.rmqtool."),
]
BakOption = Annotated[bool, typer.Option("--bak", help="Read the previous generation (.bak).")]
EngineOption = Annotated[str, typer.Option("--engine", metavar="auto|4.9|5.3", help="Whose rules to follow.")]
