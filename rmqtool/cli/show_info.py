"""The answer of ``info`` for people."""

from rich.console import Console
from rich.table import Table
from rich.text import Text

from rmqtool.cli.output import Column
from rmqtool.cli.times import iso_utc
from rmqtool.services.info import StoreInfo

INFO_FIELDS = ("topic", "queues", "messages", "configured")
INFO_COLUMNS = tuple(Column(name) for name in INFO_FIELDS)


def console() -> Console:
    """Stdout; a file or pipe gets whole lines instead of 80 columns."""
    made = Console(highlight=False, soft_wrap=True)
    return made if made.is_terminal else Console(highlight=False, soft_wrap=True, width=200)


def table(*titles: str, right: tuple[str, ...] = ()) -> Table:
    """A plain table in the one style of this program."""
    made = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for title in titles:
        made.add_column(title, justify="right" if title in right else "left", no_wrap=True)
    return made


def size_text(size: int) -> str:
    """Bytes with a unit."""
    value = float(size)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"


def show(info: StoreInfo) -> None:
    """Print it."""
    out = console()
    facts = table("", "")
    facts.show_header = False
    state = "not stopped cleanly, or running (abort is there)" if info.abort else "stopped cleanly (no abort)"
    if info.abortPid is not None:
        state += f", process {info.abortPid}"
    lock = {"absent": "never started here", "free": "free", "held": "HELD"}[info.lock]
    if info.lockPid:
        lock += f" by process {info.lockPid}"
    times = [iso_utc(t) if t is not None else "-" for t in (info.firstStoreTimestamp, info.lastStoreTimestamp)]
    rows = [
        ("store", info.store),
        ("version", f"{info.version}: {info.versionReason}"),
        ("state", state),
        ("lock", lock),
        ("physical offsets", f"{info.minPhyOffset} to {info.maxPhyOffset}"),
        ("store time", f"{times[0]} to {times[1]}"),
    ]
    for field, number in (info.checkpoint or {}).items():
        if number:
            rows.append((f"checkpoint {field}", iso_utc(number) if field.endswith("Timestamp") else str(number)))
    if info.checkpoint is None:
        rows.append(("checkpoint", "none"))
    for name, value in rows:
        facts.add_row(Text(name, style="bold"), Text(value))
    out.print(facts)
    files = table("files", "count", "size", "file size", "note", right=("count", "size", "file size"))
    for group in info.files:
        one = size_text(group.fileSize) if group.fileSize else ""
        files.add_row(group.kind, str(group.files), size_text(group.bytes), one, Text(group.note or ""))
    out.print()
    out.print(files)
    topics = table("topic", "queues", "messages", right=("queues", "messages"))
    for topic in info.topics:
        topics.add_row(Text(topic.topic), str(topic.queues), str(topic.messages))
    out.print()
    out.print(topics)
    if info.groups:
        out.print()
        out.print(Text("groups  ", style="bold") + Text(" ".join(info.groups)))
