"""The table of commands. The first screen, marks, paging, completion and the modules to load derive from it.

To add a command, add an entry here and a function in the module that it names; ``rmqtool manual developing`` has the
steps. Every start of the program reads this module, so it imports nothing.
"""

LINE = 80  # columns of the first screen
_TITLES = 19  # of these, up to the summaries


class Entry:
    """One command.

    Args:
        name: a word; a group puts its own before it.
        module: where its function is, below ``rmqtool.cli``.
        summary: its line in lists of commands.
        arguments: the kind of each argument. Completion offers names for ``topic``, ``group``, ``queue``, ``code``,
            ``config-file``, ``page`` and ``part...``; for other kinds the shell completes file names.

    Attributes:
        pages: it only shows something and ends by itself, so a pager may show it, with the notes below.
        writes: it changes something, so output that cannot be written is an error.
        marked: it changes or creates a store: marked with * on the first screen.
        discards: when interrupted it throws its work away.
        resumes: when interrupted, the same command continues its work.
        live: it takes a live cluster in place of a store directory.
        client: it takes a live cluster among its arguments, instead of ``--namesrv``.
    """

    __slots__ = (
        "arguments", "client", "discards", "live", "marked", "module", "name", "pages", "resumes", "summary", "writes",
    )  # fmt: skip

    def __init__(
        self,
        name: str,
        module: str,
        summary: str,
        arguments: str = "",
        *,
        pages: bool = False,
        writes: bool = False,
        marked: bool | None = None,
        discards: bool = False,
        resumes: bool = False,
        live: bool = False,
        client: bool = False,
    ) -> None:
        self.name, self.module, self.summary, self.arguments = name, module, summary, arguments.split()
        self.pages, self.writes = pages, writes
        self.marked = writes if marked is None else marked
        self.discards, self.resumes, self.live, self.client = discards, resumes, live, client


class Group:
    """A word that several commands begin with, listed in this order.

    Args:
        summary: its line on the first screen, without the names of the commands.
        help: the same on its own screen.
        default: the command that is meant if a directory follows the group's name.
    """

    __slots__ = ("commands", "default", "help", "marked", "name", "summary")

    def __init__(self, name: str, summary: str, help: str | None, *commands: Entry, default: str | None = None) -> None:
        names = ", ".join(command.name for command in commands)
        self.name, self.commands, self.default = name, {command.name: command for command in commands}, default
        self.summary, self.help = f"{summary} ({names}).", f"{help or summary} ({names})."
        self.marked = any(command.marked for command in commands)
        for command in commands:
            command.name = f"{name} {command.name}"
            if command.writes:
                command.summary = command.summary.replace(".", " (writes).")


def _shows(name: str, module: str, summary: str, arguments: str = "") -> Entry:
    return Entry(name, module, summary, arguments, pages=True)


def _asks(name: str, module: str, summary: str, arguments: str = "target") -> Entry:
    return Entry(name, module, summary, arguments, pages=True, live=True)


def _changes(name: str, module: str, summary: str, arguments: str = "target") -> Entry:
    return Entry(name, module, summary, arguments, writes=True, live=True)


def _writes(name: str, module: str, summary: str, arguments: str = "", **more: bool) -> Entry:
    return Entry(name, module, summary, arguments, writes=True, **more)


SECTIONS: dict[str, tuple[Entry | Group, ...]] = {
    "Look": (
        _asks("info", "read.inspect", "Show what a store is: version, sizes, topics, who holds it.", "store"),
        _shows("check", "read.check", "Check a whole store, and say what to do.", "store"),
        _shows("explain", "read.check", "Explain a code of check or doctor, and what to do about it.", "code"),
        _asks("trace", "read.trace", "Show the whole life of one message, copy by copy.", "store id"),
        _shows("why", "read.why", "Say where a message is, where it is not, and why.", "store message..."),
        Group(
            "topic", "Topics and their queues", "Look at topics: settings, queues and consumers",
            _asks("list", "read.topic", "List topics: settings, queues, messages, groups.", "store topic"),
            _asks("show", "read.topic", "Show one topic: settings, queues, lag of each group.", "store topic"),
            _shows("latest", "read.topic", "Show the newest message of each key of a compacted topic.", "store topic"),
            _asks("unused", "read.topic", "List topics that nobody uses, and why.", "store"),
            _changes("create", "admin.topics", "Create a topic on live brokers.", "target topic"),
            _changes("update", "admin.topics", "Change a topic on live brokers.", "target topic"),
            _changes("perm", "admin.topics", "Change the permission of a topic.", "target topic perm"),
            _changes("delete", "admin.topics", "Delete a topic on live brokers.", "target topic"),
        ),
        _asks("query-key", "read.query", "Find the messages of a topic by key, through the index.", "store topic key"),
        _asks("query-id", "read.query", "Find a message by its offset id or its unique id.", "store id topic"),
        _asks(
            "query-offset", "read.query", "Read messages of a queue from a queue offset on.", "store topic queue offset"
        ),
        _asks("query-time", "read.query", "Find the queue offset for a store time.", "store topic queue time"),
        Group(
            "commitlog", "Look into the commit log", None,
            _shows("dump", "read.files", "List messages in log order.", "store topic"),
            _shows("hexdump", "read.files", "Show bytes of the commit log with every field named.", "store"),
        ),
        _shows("grep", "read.grep", "Search messages by body, keys, properties or hosts.", "store pattern topic"),
        Group(
            "consumequeue", "Look into consume queues", None,
            _shows(
                "dump", "read.files", "List the entries of consume queues, as a broker would read them.", "store topic"
            ),
        ),
        Group(
            "index", "Look into index files", None,
            _shows("dump", "read.files", "List index files or their entries, oldest first.", "store"),
        ),
        Group(
            "tier", "Tiered storage of a store", "Look at tiered storage",
            _shows("list", "read.tier", "Show what of each queue is in the tier, the log, or lost.", "store"),
            _shows("check", "read.tier", "Check the tier, and compare it with the local log.", "store"),
        ),
        _shows("checkpoint", "read.inspect", "Show when messages, queues and index were last flushed.", "store"),
        _asks(
            "offsets", "read.inspect", "Show consumer offsets beside the queues they point into.", "store group topic"
        ),
        _asks("config", "read.inspect", "Show the broker's config files, as it reads them.", "store config-file"),
        _shows("diff", "read.diff", "Compare two stores: logs, messages, queues, offsets, config.", "store other"),
        _shows("replicas", "read.replicas", "Compare replicas, and show which to start.", "other..."),
        _shows("du", "read.usage", "Show the space used, by topic, tag, day and more.", "store topic"),
        Entry("browse", "browse.command", "Look around in a store in the terminal.", "store"),
        _shows("retention", "read.usage", "Show when files expire, and how long the disk lasts.", "store"),
        _shows("manual", "man.manual", "Read the manual: emergencies, commands, file formats.", "page"),
    ),
    "Repair": (
        _writes("recover", "repair.recover", "Recover a store as a broker would, keeping what is cut.", "store"),
        _writes(
            "salvage", "repair.salvage", "Copy every intact message into a new store.", "other... new", discards=True
        ),
        _writes("export", "repair.salvage", "Rewrite a store in RocksDB form as files.", "store new", discards=True),
        _writes("convert", "repair.convert", "Make a store of another form from a store.", "store new", discards=True),
        _writes("split", "repair.convert", "Copy topics, or spread the log over directories.", "store new",
                discards=True),
        _writes("consolidate", "repair.convert", "Bring a log in several directories into one.", "store new",
                discards=True),
        _writes(
            "rebuild", "repair.rebuild", "Rebuild queues, index or checkpoint; repair config.", "store part..."
        ),
        _changes("undo", "repair.undo", "Restore what the last writing command replaced.", "store"),
        _writes("truncate", "repair.truncate", "Cut the log at a message, queues and index too.", "store offset"),
        _writes("dispatch", "repair.truncate", "Put messages that are in no queue yet into queues and index.", "store"),
        _writes("redact", "repair.redact", "Overwrite bodies of messages in equal length.", "store topic"),
        Group(
            "backup", "Backups of a store", "Make, verify and restore backups",
            _writes(
                "create", "repair.backup", "Copy a stopped or live store.", "store out", marked=False, resumes=True
            ),
            Entry("list", "repair.backup", "List backups.", "out", pages=True),
            Entry("verify", "repair.backup", "Compare backups with their checksums.", "out"),
            _writes("restore", "repair.backup", "Make a store from a backup.", "out new", discards=True),
            default="create",
        ),
        Entry("evidence", "repair.evidence", "Pack facts about a store for a support case.", "store out"),
        _writes("clean", "repair.clean", "Remove expired commit-log files, and what points there.", "store"),
    ),
    "Write": (
        _writes("init", "repair.init", "Create an empty store.", "store"),
        _writes("append", "write.append", "Append messages to a store, given as NDJSON.", "store file"),
        _writes("import", "write.import_", "Make a store from messages in Parquet or NDJSON.", "new file..."),
        _writes("run", "write.run", "Deliver delays and retries, check transactions.", "store"),
    ),
    "Serve": (
        Entry("serve", "serve.serve", "Serve a store to RocketMQ clients, as brokers do.", "other...", marked=True),
        Entry("namesrv", "serve.namesrv", "Run a name server for brokers and clients."),
    ),
    "Live clusters": (
        _changes("apply", "admin.apply", "Create and change topics and groups as a file says.", "store file"),
        _shows("compare", "admin.compare", "Compare a store directory with a live broker.", "store target"),
        _asks("doctor", "admin.doctor", "Find what is wrong in a live cluster, and say what to do."),
        Group(
            "cluster", "Brokers of a live cluster", "Look at the brokers of a live cluster",
            _asks("list", "admin.cluster", "List brokers: roles, versions, rates, disks, waits."),
            _asks("replicas", "admin.cluster", "List the slaves of each master, and how far they are behind."),
            _changes("clean", "admin.cleaning", "Have brokers remove what has expired.", "target part"),
        ),
        Group(
            "broker-config", "Settings of live brokers", "Look at the settings of live brokers",
            _asks("show", "admin.cluster", "Show the settings that brokers run with.", "target broker"),
            _asks("diff", "admin.cluster", "Show settings that differ between brokers, or from a file or defaults."),
            _changes("set", "admin.settings", "Change settings of brokers.", "target setting"),
        ),
        Group(
            "namesrv-config", "Settings of name servers", None,
            _asks("show", "admin.settings", "Show the settings that name servers run with."),
            _changes("set", "admin.settings", "Change settings of name servers.", "target setting"),
        ),
        Group(
            "controller", "Controllers and the replicas that they elect, 5.x", None,
            _asks("list", "admin.controllers", "List controllers, and which of them leads."),
            _asks("replicas", "admin.controllers", "List replicas: master, in sync, epochs.", "target broker"),
            _changes("elect", "admin.controllers", "Make a replica the master.", "target broker id"),
            _changes("forget", "admin.controllers", "Forget replicas that are down.", "target broker id"),
        ),
        Group(
            "controller-config", "Settings of controllers, 5.x", None,
            _asks("show", "admin.controllers", "Show the settings that controllers run with."),
            _changes("set", "admin.controllers", "Change settings of controllers.", "target setting"),
        ),
        Group(
            "write-perm", "Write permission of brokers on name servers", None,
            _changes("wipe", "admin.settings", "Stop clients from sending to a broker.", "target broker"),
            _changes("add", "admin.settings", "Let clients send to a broker again.", "target broker"),
        ),
        Group(
            "kv", "The KV configuration of name servers", None,
            _asks("show", "admin.settings", "Show the entries of a namespace, or one of them.", "target namespace key"),
            _changes("set", "admin.settings", "Set an entry on every name server.", "target namespace key value"),
            _changes("delete", "admin.settings", "Delete an entry on every name server.", "target namespace key"),
        ),
        Group(
            "static-topic", "Static topics, whose queues move between brokers", None,
            _asks("list", "admin.static_topics", "List static topics, and who leads their queues.", "store topic"),
            _asks("show", "admin.static_topics", "Show which brokers hold a topic's queues.", "store topic"),
            _changes("create", "admin.static_topics", "Create one on live brokers, or add queues.", "target topic"),
            _changes("remap", "admin.static_topics", "Move its queues to other brokers.", "target topic"),
        ),
        Group(
            "order-conf", "Queues of ordered topics on name servers", None,
            _asks("show", "admin.settings", "Show the ordered topics.", "target name"),
            _changes("set", "admin.settings", "Make a topic ordered, with queues per broker.", "target topic queues"),
            _changes("delete", "admin.settings", "Make a topic unordered.", "target topic"),
        ),
        Group(
            "user", "Users of live brokers, 5.x", None,
            _asks("list", "admin.access", "List users.", "target user"),
            _changes("create", "admin.access", "Create a user.", "target user"),
            _changes("update", "admin.access", "Change a user.", "target user"),
            _changes("delete", "admin.access", "Delete a user.", "target user"),
        ),
        Group(
            "acl", "Access rules of live brokers, 5.x", None,
            _asks("list", "admin.access", "List access rules.", "target subject"),
            _changes("set", "admin.access", "Allow or deny a subject the use of resources.", "target subject"),
            _changes("delete", "admin.access", "Delete rules of a subject.", "target subject"),
        ),
        Group(
            "plain-acl", "Accounts of live brokers, 4.9", None,
            _asks("list", "admin.plain_access", "List accounts.", "target user"),
            _changes("set", "admin.plain_access", "Create an account, or change it.", "target user"),
            _changes("delete", "admin.plain_access", "Delete an account.", "target user"),
            _asks("addresses", "admin.plain_access", "List addresses that need no account."),
            _changes("set-addresses", "admin.plain_access", "Set addresses that need no account.", "target value"),
            _asks("files", "admin.plain_access", "List files with accounts, and their changes."),
        ),
        Group(
            "client", "Clients of a live cluster", "Look at the clients of a live cluster",
            _asks("list", "admin.cluster", "List the consumers that are online.", "target group"),
            _asks("producers", "admin.clients", "List the producers that are online.", "target group"),
            _asks("show", "admin.clients", "Show who holds which queue, and why it stands still.", "target group"),
            _asks("stack", "admin.clients", "Show what the threads of consumers are doing.", "target group"),
        ),
        Group(
            "message", "Single messages of a live cluster", None,
            Entry(
                "consume-directly", "admin.clients", "Have one consumer consume one message now.", "target id group",
                live=True, writes=True,
            ),
        ),
        Group(
            "cold-data", "Limits on cold data of live brokers, 5.x", None,
            _asks("list", "admin.cold_data", "List groups that have a limit, or have read cold data.", "target group"),
            _changes("set", "admin.cold_data", "Limit the cold data that a group may read.", "target group size"),
            _changes("remove", "admin.cold_data", "Remove a group's own limit.", "target group"),
        ),
        Group(
            "lite", "Lite topics of live brokers, 5.5", None,
            _asks("brokers", "admin.lite", "Count the lite topics of each broker."),
            _asks("list", "admin.lite", "List topics that have lite topics.", "target topic"),
            _asks("show", "admin.lite", "Show one lite topic, and who subscribes to it.", "target topic name"),
            _asks("lag", "admin.lite", "Show the lag of a group in lite topics.", "target group"),
            _asks("client", "admin.lite", "Show the lite topics of a client.", "target group id"),
            Entry(
                "dispatch", "admin.lite", "Have clients told of waiting messages again.", "target group", live=True,
                writes=True,
            ),
        ),
        Entry(
            "send-rtt", "admin.cluster", "Measure how long brokers take to store a message.", "target topic", live=True,
            writes=True, marked=False,
        ),
        Entry("send", "live.send", "Send messages, given as NDJSON or lines.", "live-topic file", client=True),
        Entry("consume", "live.consume", "Show messages of a topic; --ack consumes them.", "live-topic", client=True),
        _writes(
            "replay", "live.copying.replay", "Send the messages of a store, each once.", "store", marked=False,
            client=True,
        ),
        _writes(
            "mirror", "live.copying.mirror", "Copy topics into a store, each message once.", "live-topic...",
            client=True,
        ),
    ),
    "Consumers": (
        Group(
            "group", "Groups", "Look at consumer groups and set their offsets",
            _asks("list", "consumers.group", "List groups: topics, lag, retries, dead letters.", "store"),
            _asks("lag", "consumers.group", "Show the lag of groups.", "store group topic"),
            _shows("inflight", "consumers.group", "List messages that POP consumers hold.", "store group topic"),
            _asks("offsets", "consumers.group", "List the stored offsets.", "store group topic"),
            _changes("reset", "consumers.set_offsets", "Set the offsets of a group.", "store group topic"),
            _changes(
                "clone", "consumers.set_offsets", "Copy the offsets of a group to another.", "store group group topic"
            ),
            _changes("create", "admin.groups", "Create a group on live brokers.", "target group"),
            _changes("update", "admin.groups", "Change a group on live brokers.", "target group"),
            _changes("mode", "admin.groups", "Have a group pull a topic, or pop it.", "target group topic mode"),
            _changes("delete", "admin.groups", "Delete a group on live brokers.", "target group"),
            _asks(
                "diff", "consumers.group", "Compare the offsets of two stores or snapshots.", "store other group topic"
            ),
        ),
        Group(
            "retry", "Messages that consumers failed to consume", "Look at messages that consumers failed to consume",
            _asks("list", "consumers.retry", "List what consumer groups failed to consume.", "store group topic"),
        ),
        Group(
            "dlq", "Dead letters", "Look at dead letters and requeue them",
            _asks("list", "consumers.retry", "List dead letters.", "store group topic"),
            _asks("export", "consumers.retry", "Write dead letters as whole messages.", "store group topic"),
            _changes("requeue", "consumers.retry", "Send dead letters back to their group or topic.", "store group"),
        ),
        Group(
            "delay", "Delayed messages", "Look at delayed messages",
            _asks("list", "consumers.delay", "Show each delay level and its messages.", "store"),
            _asks("due", "consumers.delay", "List the messages that a broker would deliver now.", "store topic"),
        ),
        Group(
            "transaction", "Transactions and their outcomes", "Look at transactions and their outcomes",
            _asks("list", "consumers.transaction", "List transactions with their state.", "store group topic"),
            _asks("show", "consumers.transaction", "Show one transaction: message, checks, outcome.", "store id"),
        ),
        Group(
            "rebalance", "Show which consumer gets which queue", None,
            _asks("plan", "consumers.rebalance", "Show which consumer of a group gets which queue.", "store topic"),
        ),
    ),
    "Tables, through Spark": (
        _writes(
            "dump-to-parquet", "tables.dump", "Write all messages to Parquet.", "store out",
            live=True, marked=False, resumes=True,
        ),
        _writes(
            "dump", "tables.dump", "Add messages to a table of Delta Lake or Iceberg.", "store out",
            live=True, marked=False, resumes=True,
        ),
        Entry("sql", "tables.sql", "Query a store in SQL.", "store query", live=True),
        Group(
            "report", "Ready reports", "Run a ready report",
            Entry(
                "traffic", "tables.report", "Count messages and bytes by topic and hour or minute (UTC).", "store topic"
            ),
            Entry("sizes", "tables.report", "Count messages by topic and stored size.", "store topic"),
            Entry("duplicates", "tables.report", "List the messages that a topic has more than once.", "store topic"),
            Entry("producers", "tables.report", "Count messages by the host that sent them.", "store topic"),
            Entry("lag", "tables.report", "Show the lag of consumer groups by topic.", "store group topic"),
            Entry(
                "unconsumed", "tables.report", "List messages that were sent and not consumed.", "store group topic"
            ),
            Entry("retries", "tables.report", "Follow messages that a group failed to consume.", "store group"),
            Entry("html", "html.report", "Write a page about a store, for a browser.", "store out"),
        ),
        _writes("warm-up", "tables.warm_up", "Make later starts of Spark faster.", marked=False),
    ),
}  # fmt: skip
INSTEAD = {"dump": ("commitlog dump STORE", "dump-to-parquet STORE OUT")}
"""What an incomplete line may have meant."""
WORDS: dict[str, Entry | Group] = {entry.name: entry for section in SECTIONS.values() for entry in section}
COMMANDS: dict[str, Entry] = {
    command.name: command
    for entry in WORDS.values()
    for command in (entry.commands.values() if isinstance(entry, Group) else (entry,))
}


def complete_words(argv: list[str]) -> list[str]:
    """A command line with the command that a group's name stands for: ``backup STORE DIR`` is ``backup create``."""
    entry = WORDS.get(argv[0]) if argv else None
    if not isinstance(entry, Group) or entry.default is None or len(argv) < 2 or argv[1] in entry.commands:
        return argv
    from os.path import isdir

    return [argv[0], entry.default, *argv[1:]] if isdir(argv[1]) else argv


def find_command(argv: list[str]) -> Entry | None:
    """The command that a command line names, or None. The line need not be valid."""
    words = [word for word in complete_words(argv) if not word.startswith("-")]
    return COMMANDS.get(" ".join(words[:2])) or COMMANDS.get(" ".join(words[:1]))


def writes(argv: list[str]) -> bool:
    """Whether a command line changes something: a writing command without --dry-run."""
    command = find_command(argv)
    return command is not None and command.writes and not {"--dry-run", "-n"} & {*argv}


def options_of(name: str) -> list[str]:
    """The options of a command; those that take a value end with ``=``."""
    from rmqtool.cli.option_names import TEXT

    return _lines(TEXT).get(name, "").split()


def words_of(what: str) -> list[str]:
    """The values of an option or argument (``init --engine``), if they are a fixed choice."""
    from rmqtool.cli.option_names import VALUES

    return _lines(VALUES).get(what, "").split()


def _lines(table: str) -> dict[str, str]:
    parts = (line.partition(": ") for line in table.replace("\n  ", " ").splitlines())
    return {name: rest for name, _colon, rest in parts}


def list_commands() -> str:
    """All sections, laid out for the first screen."""
    return "\n\n".join("\n".join([f"{title}:", *map(_line, entries)]) for title, entries in SECTIONS.items())


def _line(entry: Entry | Group) -> str:
    line = f"  {'*' if entry.marked else ' '} {entry.name}"
    line += " " * (_TITLES - len(line))
    lines = [""]
    for word in entry.summary.split():
        room = LINE - _TITLES - 2
        if len(lines[-1]) + 1 + len(word) > room and lines[-1]:
            lines.append("")
        lines[-1] += f" {word}" if lines[-1] else word
    return line + "  " + ("\n" + " " * (_TITLES + 2)).join(lines)
