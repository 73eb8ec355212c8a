"""Opening the store that a command line names, and choosing a release."""

from typing import TYPE_CHECKING

from rmqtool.cli.render.text import note
from rmqtool.errors import BadValue, Refused, UnreadableStore
from rmqtool.store.disk.directories import is_dir
from rmqtool.store.disk.remote import is_uri
from rmqtool.store.layout.broker_conf import BrokerConf, load
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import CommitLog
from rmqtool.store.roles.elsewhere import Asked, log_elsewhere, messages_elsewhere, need_readable_log

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmqtool.admin.subjects import GroupSubject, TopicSubject
    from rmqtool.admin.target import Target
    from rmqtool.rules.releases import Release
    from rmqtool.services.offsets.files import ClientFile

_FILE = "file://"
LIVE = ("rocketmq://", "@")  # prefixes of the words that name live clusters


def live_target(store: str) -> "Target | None":
    """The live cluster that is named instead of a store; None if a directory is named.

    Raises:
        BadValue: it cannot be understood, or the config file has no such name.
    """
    check_scheme(store)
    if not store.startswith(LIVE):
        return None
    from rmqtool.admin.target import is_live, parse_target
    from rmqtool.cli.defaults import read_profiles

    return parse_target(store, read_profiles() if store.startswith("@") else None) if is_live(store) else None


def check_scheme(word: str) -> None:
    """Check that a word is not the name of a live cluster without its scheme.

    Raises:
        BadValue: it is.
    """
    if ":" in word:
        from rmqtool.admin.target import SCHEME, looks_live

        if looks_live(word):
            raise BadValue(f"{word}: no such directory; a live cluster is named {SCHEME}{word}")


def open_topics(
    store: str, broker_conf: str | None, warn: "Callable[[str], None]", *, system: bool = True
) -> "TopicSubject":
    """The topics of a store or of a live cluster.

    Args:
        warn: called with each reason why the answer is incomplete. system: the broker's own topics are wanted as well.
    """
    if (target := live_target(store)) is not None:
        from rmqtool.admin.live.topics import LiveTopics

        return LiveTopics(target, warn, note, system=system)
    from rmqtool.services.lookup.topics import StoreTopics

    return StoreTopics(need_log(store, broker_conf), warn)


def open_groups(
    store: str,
    broker_conf: str | None,
    warn: "Callable[[str], None]",
    wanted: "Callable[[str, str], bool]" = lambda _group, _topic: True,
    *,
    client: "ClientFile | None" = None,
    bak: bool = False,
    log: bool = True,
    in_rounds: bool = False,
) -> "GroupSubject":
    """The groups of a store or of a live cluster.

    Args:
        warn: called with each reason why the answer is incomplete. wanted: whether a group's offsets in a topic are
            asked for.
        client: offsets of a broadcasting client in place of the broker's.
        bak: the previous generation of the broker's.
        log: the store must have a log, or queues.
        in_rounds: asked again and again: do not name what a live cluster never reports, and wait for slow brokers only
            as long as a round may take.
    """
    if (target := live_target(store)) is not None:
        from rmqtool.admin.live.groups import ROUND, LiveGroups

        if in_rounds:
            return LiveGroups(target, warn, lambda _text: None, wanted, limit=ROUND)
        return LiveGroups(target, warn, note, wanted)
    from rmqtool.admin.offline import StoreGroups

    layout = need_log(store, broker_conf).layout if log else open_to_read(store, broker_conf)
    return StoreGroups(layout, warn, wanted, client=client, bak=bak)


_reading: list[StoreLayout] = []  # what the running command reads


def open_to_read(store: str, broker_conf: str | None) -> StoreLayout:
    """As :func:`open_store`, for a command that only reads: it skips what cannot be read (:func:`warn_of_skipped`)."""
    layout = open_store(store, broker_conf).passing_over(queue_files=True)
    _reading.append(layout)
    return layout


def warn_of_skipped() -> bool:
    """Name on stderr what the command that ends could not read; returns whether there was anything."""
    reasons = [reason for layout in _reading for reason in (layout.passed or {}).values()]
    _reading.clear()
    for reason in dict.fromkeys(reasons):
        note(f"warning: {reason}: the answer lacks what is in it")
    return bool(reasons)


def open_store(store: str, broker_conf: str | None) -> StoreLayout:
    """The layout of a store directory, with the broker's properties file if given.

    Raises:
        BadValue: tieredStoreFilePath is a URI of an unknown file system.
    """
    return StoreLayout(store, _with_tier_here(load(broker_conf)) if broker_conf else None)


def _with_tier_here(conf: BrokerConf) -> BrokerConf:
    """Settings in which a tier that is elsewhere, by its URI, is read from there as far as it is needed."""
    uri = (conf.text("tieredStoreFilePath") or "").strip()
    if not is_uri(uri):
        return conf
    if uri.startswith(_FILE):
        path = uri.removeprefix(_FILE)
    else:
        from rmqtool.analytics.remote.stores import attach_store

        path = attach_store(uri)
    return conf.with_value("tieredStoreFilePath", path)


def need_log(store: str, broker_conf: str | None, *, say: bool = True, whole: bool = False) -> CommitLog:
    """The commit log of a store, which may be missing if there are queues.

    Args:
        say: note which parts of the log are elsewhere, and at the end what could not be read; writing commands leave
            that to the table of roles, and stop at what they cannot read.
        whole: stop at what cannot be read.

    Raises:
        UnreadableStore: neither log nor queues, as in a directory of config files.
    """
    layout = open_to_read(store, broker_conf) if say and not whole else open_store(store, broker_conf)
    log = _open_log(layout)
    if say:
        for warning in log_elsewhere(layout, "missing here"):
            note(f"warning: {warning}")
    return log


def _open_log(layout: StoreLayout) -> CommitLog:
    log = CommitLog(layout)
    if not log.segments.files and not any(map(is_dir, (*layout.commit_log_paths, layout.path("consumequeue")))):
        raise UnreadableStore(f"{layout.root}: no commit log and no consume queues in it")
    return log


def need_messages(
    store: str,
    broker_conf: str | None,
    asked: Asked | None = None,
    *,
    tier: bool = True,
    reads_tier: bool = False,
    what: str = "not shown",
) -> CommitLog:
    """As :func:`need_log`, for commands that output messages; notes which messages are elsewhere.

    Args:
        asked: whether a queue (topic, queue id) is of interest; all by default.
        tier: note how many messages are only in the tier; those of system topics never are.
        reads_tier: those are read, too.
        what: what is not done with those messages.

    Raises:
        CorruptFile: the messages are in a DLedger log that cannot be read; an empty answer would be wrong.
    """
    log = _open_log(open_to_read(store, broker_conf))
    need_readable_log(log.layout)
    elsewhere = (
        messages_elsewhere(log.layout, asked, what, reads=reads_tier) if tier else log_elsewhere(log.layout, what)
    )
    for warning in elsewhere:
        note(f"warning: {warning}")
    return log


def chosen_release(text: str) -> "Release | None":
    """The release that the user names; None for the one that wrote the store (``auto``).

    Raises:
        BadValue: no such release.
    """
    if text == "auto":
        return None
    from rmqtool.rules.releases import RELEASES, release_named

    try:
        return release_named(text)
    except ValueError:
        *others, last = RELEASES
        raise BadValue(f"--engine {text}: give {', '.join(('auto', *others))} or {last}") from None


def open_copies(stores: list[str], confs: list[str] | None, what: str = "not compared") -> list[StoreLayout]:
    """Open the directories of several copies, each with its settings.

    Args:
        confs: properties files; one for all, or one for each.
        what: what is not done with messages that are elsewhere.

    Raises:
        BadValue: fewer than two directories, or another number of files.
        Refused: a directory is given twice.
        UnreadableStore: a directory is no store.
    """
    import os

    if len(stores) < 2:
        raise BadValue(f"{stores[0]}: give at least two directories")
    if confs and len(confs) not in (1, len(stores)):
        raise BadValue(f"--broker-conf: give one file for all, or one for each of the {len(stores)} directories")
    chosen: list[str | None] = []
    for store, conf in zip(stores, confs * len(stores) if confs and len(confs) == 1 else confs or stores, strict=True):
        beside = store.rstrip("/") + ".conf"
        if confs:
            chosen.append(conf)
        elif os.path.isfile(beside):
            note(f"settings of {store}: {beside}")
            chosen.append(beside)
        else:
            chosen.append(None)
    layouts = [need_messages(store, conf, what=what).layout for store, conf in zip(stores, chosen, strict=True)]
    real = [os.path.realpath(store) for store in stores]
    for at, path in enumerate(real):
        if path in real[:at]:
            raise Refused(f"{stores[at]}: the same directory as {stores[real.index(path)]}")
    return layouts
