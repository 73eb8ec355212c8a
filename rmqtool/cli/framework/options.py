"""Options that many commands share."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any

import typer


class Output(StrEnum):
    """Forms of a result."""

    text = "text"
    table = "table"
    json = "json"
    ndjson = "ndjson"
    csv = "csv"


class Progress(StrEnum):
    """Where progress is shown."""

    auto = "auto"
    json = "json"
    none = "none"


class Body(StrEnum):
    """Forms of a message body."""

    auto = "auto"
    utf8 = "utf8"
    json = "json"
    hex = "hex"
    base64 = "base64"
    none = "none"


def option(name: str, metavar: str, help: str) -> Any:
    """An option with a value."""
    return typer.Option(name, metavar=metavar, help=help)


StoreDir = Annotated[str, typer.Argument(metavar="STORE", help="Store directory (storePathRootDir).")]
StoreOrTarget = Annotated[
    str,
    typer.Argument(metavar="STORE", help="Store directory, or a live cluster: rocketmq://HOST:9876[/CLUSTER], @NAME."),
]
TargetArgument = Annotated[
    str, typer.Argument(metavar="TARGET", help="A live cluster: rocketmq://HOST:9876[,HOST2:9876][/CLUSTER], or @NAME.")
]
OutputOption = Annotated[
    Output, typer.Option("--output", "-o", metavar="FORM", help="Form of the result: text, table, json, ndjson or csv.")
]
BodyOption = Annotated[
    Body,
    option(
        "--body",
        "FORM",
        "How to show bodies: auto (text where it is UTF-8, else base64), utf8, json, hex, base64 or none.",
    ),
]
FieldOption = Annotated[
    list[str] | None,
    option("--field", "PATH", "Show this field of bodies, not the whole body: order.id, items.0.sku; may be repeated."),
]
SchemaOption = Annotated[
    str | None,
    option(
        "--body-schema",
        "FILE",
        "Decode bodies by this schema, FILE or FILE:TYPE: .avsc, .proto or a Protobuf descriptor set; in tables also "
        ".json (JSON Schema), or json for one from a sample.",
    ),
]
NAMESRV = "127.0.0.1:9876"
"""The default of ``--namesrv``."""
NamesrvOption = Annotated[
    str,
    typer.Option(
        "--namesrv",
        metavar="ADDRS",
        envvar="NAMESRV_ADDR",
        help="Name servers of the cluster: HOST:PORT, separated by ;. Instead, rocketmq://HOST:9876 or @NAME may be "
        "among the arguments.",
    ),
]
BroadcastOption = Annotated[
    str | None, option("--broadcast", "FILE", "The offsets.json of a broadcasting client, not the broker's offsets.")
]
BrokerOption = Annotated[str | None, option("--broker", "NAME", "The broker in that file that this store belongs to.")]
ProducerGroupOption = Annotated[str, typer.Option("--group", "-g", metavar="GROUP", help="The producer group.")]
JavaClientOption = Annotated[
    str, option("--engine", "RELEASE", "Behave as the Java client of this release: 4.9, 5.3 or auto (5.3).")
]
TlsOption = Annotated[
    str | None,
    option("--tls-config", "FILE", "Use TLS as configured in this file, the tls.properties of Java clients."),
]
AclOption = Annotated[
    str | None, option("--acl", "FILE", "Sign requests with the keys in this tools.yml; default: RMQTOOL_ACCESS_KEY.")
]
AtOption = Annotated[str, option("--at", "TIME", "What is due at this time (ms, ISO 8601, -48h, now).")]
BrokerConfOption = Annotated[
    str | None, option("--broker-conf", "FILE", "The broker's properties file, for its file sizes and paths.")
]
ConfsOption = Annotated[
    list[str] | None, option("--broker-conf", "FILE", "A broker's properties file; one for all, or one for each STORE.")
]
LimitOption = Annotated[int | None, typer.Option("--limit", min=1, metavar="N", help="Stop after this many rows.")]
SinceOption = Annotated[
    str | None, option("--since", "TIME", "Stored at or after this time (ms, ISO 8601, -48h, now).")
]
UntilOption = Annotated[str | None, option("--until", "TIME", "Stored before this time.")]
TopicOption = Annotated[
    list[str] | None,
    typer.Option("--topic", "-t", metavar="TOPIC", help="Only these topics, * and ? match; may be repeated."),
]
SettingsArgument = Annotated[list[str], typer.Argument(metavar="SETTING...", help="Settings, each as NAME=VALUE.")]
SettingOption = Annotated[
    list[str] | None, option("--name", "SETTING", "Only these settings, * and ? match; may be repeated.")
]
GroupOption = Annotated[
    list[str] | None,
    typer.Option("--group", "-g", metavar="GROUP", help="Only these groups, * and ? match; may be repeated."),
]
# option, and the argument that may be given instead
SELECTED: tuple[tuple[Any, Any], ...] = (
    (GroupOption, Annotated[str | None, typer.Argument(metavar="[GROUP]", help="The same as --group.")]),
    (TopicOption, Annotated[str | None, typer.Argument(metavar="[TOPIC]", help="The same as --topic.")]),
)
QueueOption = Annotated[
    list[int] | None, typer.Option("--queue", "-q", metavar="QUEUE", help="Only these queue ids; may be repeated.")
]
TagOption = Annotated[list[str] | None, option("--tag", "TAG", "Only messages with this tag; may be repeated.")]
KeyOption = Annotated[list[str] | None, option("--key", "KEY", "Only messages with this key; may be repeated.")]
PropertyOption = Annotated[
    list[str] | None, option("--property", "PROPERTY", "Only messages with this property, NAME=VALUE; may be repeated.")
]
WhereOption = Annotated[
    str | None,
    option(
        "--where",
        "EXPR",
        "Only messages for which this is true, as SQL92 of subscriptions: \"bodyLength > 99 AND region = 'eu'\"; "
        "body.order.id is a field of JSON bodies, or of those in --body-schema.",
    ),
]
OffsetOption = Annotated[str | None, option("--offset", "A:B", "Physical offsets from A up to, not including, B.")]
QueueOffsetOption = Annotated[
    str | None, option("--queue-offset", "A:B", "Queue offsets from A up to, not including, B.")
]
ScanOption = Annotated[bool, typer.Option("--scan", help="Read the whole log if the index has no answer.")]
ZoneOption = Annotated[
    str | None, option("--tz", "ZONE", "Time zone of arguments and tables: UTC, +08:00, Asia/Shanghai.")
]
ColumnsOption = Annotated[str | None, option("--columns", "NAMES", "Only these columns, in this order: topic,queueId.")]
WideOption = Annotated[
    bool, typer.Option("--wide", help="All columns of the table in full, however long the lines are.")
]
ProgressOption = Annotated[
    Progress,
    option("--progress", "FORM", "Progress on stderr: auto (a line on a terminal), json (every second) or none."),
]
RECOVERY_TABLES = (
    "ranges", "queues", "lost", "actions", "warnings", "refusals", "nextSteps", "destroys", "notes", "unloaded",
    "mended", "pending", "tierDangers", "unfit", "report",
)  # fmt: skip
TableOption = Annotated[str | None, option("--table", "NAME", "With --output csv: this table of the report.")]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
AcceptLossOption = Annotated[
    bool,
    typer.Option("--accept-loss", help="With --yes: even if intact messages are lost; the plan says how many."),
]
DryRunOption = Annotated[bool, typer.Option("--dry-run", "-n", help="Show the plan and change nothing.")]
BackupOption = Annotated[
    str | None,
    option(
        "--backup",
        "DIR",
        "Keep replaced files here instead of in STORE.rmqtool, or ~/.local/state/rmqtool for a cluster.",
    ),
]
BrokersOption = Annotated[
    list[str] | None, option("--broker", "NAME", "Only the broker of this name; may be repeated.")
]
BakOption = Annotated[bool, typer.Option("--bak", help="Read the previous generation (.bak).")]
EngineOption = Annotated[
    str,
    option(
        "--engine", "RELEASE", "Apply the rules of this release: 4.9, 5.3, 5.4, 5.5, or auto for that of the store."
    ),
]


# -- options that go together ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Times:
    """A range of store times."""

    since: SinceOption = None
    until: UntilOption = None


@dataclass(frozen=True)
class MessageOptions:
    """Which messages."""

    topic: TopicOption = None
    queue: QueueOption = None
    tag: TagOption = None
    key: KeyOption = None
    offset: OffsetOption = None
    queue_offset: QueueOffsetOption = None
    since: SinceOption = None
    until: UntilOption = None
    property: PropertyOption = None
    where: WhereOption = None


@dataclass(frozen=True)
class GroupChoice:
    """Which groups, and which of the queues that they consume."""

    group: GroupOption = None
    topic: TopicOption = None
    queue: QueueOption = None


@dataclass(frozen=True)
class OriginChoice:
    """Which messages that a broker keeps for a group, by the topic that they came from."""

    group: GroupOption = None
    topic: TopicOption = None
    since: SinceOption = None
    until: UntilOption = None


@dataclass(frozen=True)
class BodyOptions:
    """How to show bodies."""

    body: BodyOption = Body.auto
    field: FieldOption = None
    schema: SchemaOption = None


@dataclass(frozen=True)
class ContentChoice:
    """Which messages, by what they say."""

    property: PropertyOption = None
    where: WhereOption = None


@dataclass(frozen=True)
class ClientFileOptions:
    """The offsets of a broadcasting client, instead of the broker's."""

    broadcast: BroadcastOption = None
    broker: BrokerOption = None


@dataclass(frozen=True)
class Listing:
    """How rows of a store are listed."""

    limit: LimitOption = None
    output: OutputOption = Output.text
    broker_conf: BrokerConfOption = None


ANY_TIME, ANY_MESSAGE, ANY_GROUP, ANY_ORIGIN = Times(), MessageOptions(), GroupChoice(), OriginChoice()
ANY_CONTENT = ContentChoice()
NO_CLIENT_FILE, LISTING, BODIES = ClientFileOptions(), Listing(), BodyOptions()
