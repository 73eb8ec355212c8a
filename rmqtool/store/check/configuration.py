"""Check the broker's properties file: what a broker reads in it, and whether the store's files agree with it."""

from typing import Any

from rmqtool.rules.releases import Release
from rmqtool.store.check.advice.steps import Step, by_hand
from rmqtool.store.check.codes.code import ERROR, INFO, WARNING
from rmqtool.store.check.common.context import Context
from rmqtool.store.config.fit import IgnoredLine, Misfit, find_ignored_lines
from rmqtool.store.config.settings import settings_of
from rmqtool.store.layout.broker_conf import BrokerConf
from rmqtool.store.layout.version import QUEUES, SEPARATE_QUEUES, rocksdb_forms, wants_rocksdb, writes_both


def check_configuration(ctx: Context, conf: BrokerConf, misfits: list[Misfit], *, asked: bool) -> None:
    """Report settings that a broker ignores, and files that it would not load because of the settings.

    Args:
        conf: the given file.
        misfits: files with a length that differs from the configuration.
        asked: whether the release was given; a setting that it lacks then does not suggest that the store is of
            another.
    """
    steps_by_setting: dict[str, tuple[Step, ...]] = {}
    for misfit in misfits:
        about: dict[str, Any] = {}
        if misfit.set is not None:
            about["steps"] = by_hand(f"set {misfit.set} in {conf.path}")
            steps_by_setting |= dict.fromkeys(misfit.names, about["steps"])
        names, silent = ", ".join(misfit.names), "" if misfit.stated else " not set"
        ctx.found.situation.unfit |= misfit.stops
        ctx.found.add(
            "conf-size",
            conf.path,
            expected=f"{misfit.has} bytes, as the files of {misfit.place} are long",
            actual=f"{names}{silent}: {misfit.wants} bytes",
            consequence=misfit.consequence,
            **about,
        )
    named = {name for misfit in misfits for name in misfit.names}
    for name, size in conf.impossible.items():
        if name not in named and name in settings_of(ctx.rules.release):
            ctx.found.add(
                "conf-size",
                conf.path,
                expected="a positive number",
                actual=f"{name}: {size}",
                consequence="A broker takes this size, and can make no file of it.",
                steps=by_hand(f"write a positive number for {name} in {conf.path}"),
            )
    for name, text in conf.refused.items():
        ctx.found.situation.unfit = True
        ctx.found.add(
            "conf-value",
            conf.path,
            severity=ERROR,
            expected="delays like 1s 5s 10s 30s 1m",
            actual=f"{name}={text!r}",
            consequence="A broker with this configuration does not start.",
            steps=by_hand(f"write delays for {name} in {conf.path} that a broker reads, or remove the line"),
        )
    if conf.options:
        _check_store_type(ctx, conf)
        for line in find_ignored_lines(conf, ctx.rules.release):
            code, about = _code_of(line, conf, ctx.rules.release, asked=asked)
            # a misspelt name is covered by the step for the right one
            if steps := steps_by_setting.get(line.near or line.name):
                about["steps"] = steps
            ctx.found.add(code, conf.path, **about)


def _check_store_type(ctx: Context, conf: BrokerConf) -> None:
    """Report a configuration by which a broker does not read the queues that the store has."""
    layout = ctx.layout
    if not ctx.rules.release.is_5 or writes_both(layout):
        return
    forms, has_files = rocksdb_forms(layout), next(layout.each_queue_dir(), None) is not None
    has_database = any(place in forms for place in (QUEUES, SEPARATE_QUEUES))
    wanted = "defaultRocksDB" if wants_rocksdb(layout) else "default"
    if wants_rocksdb(layout) and has_files and not has_database:
        has, consequence = (
            "default",
            (
                "A broker with this configuration does not read the queue files: it begins a RocksDB database, and "
                "builds its queues from the log."
            ),
        )
    elif not wants_rocksdb(layout) and has_database and not has_files:
        has, consequence = (
            "defaultRocksDB",
            (
                "A broker with this configuration reads nothing that is in RocksDB: it builds queue files from the "
                "log, and has the topics, groups and consumer offsets of the JSON files in config alone."
            ),
        )
    else:
        return
    ctx.found.add(
        "conf-store-type",
        conf.path,
        expected=f"storeType={has}, as the store has its queues",
        actual=f"storeType={wanted}" + ("" if conf.text("storeType") else ", for want of the setting"),
        consequence=consequence,
        steps=by_hand(f"set storeType={has} in {conf.path}"),
    )


def _code_of(line: IgnoredLine, conf: BrokerConf, release: Release, *, asked: bool) -> tuple[str, dict[str, Any]]:
    """Code and fields of the finding for a line without effect."""
    if line.text is not None:
        return "conf-value", {
            "expected": f"a value that a broker reads; it takes {line.takes}",
            "actual": f"{line.name}={line.text!r}",
            "steps": by_hand(f"write a value for {line.name} in {conf.path} that a broker reads"),
        }
    if line.other is not None:
        actual = f"{line.name}, which {line.other} has and {release} has not"
        return "conf-release", {"severity": WARNING if asked else INFO, "actual": actual}
    if line.near is not None:
        steps = by_hand(f"write {line.near} instead of {line.name} in {conf.path}")
        return "conf-unknown", {"expected": line.near, "actual": line.name, "steps": steps}
    # a plug-in may have settings of its own
    return "conf-unknown", {"actual": line.name} | ({"severity": INFO} if conf.text("messageStorePlugIn") else {})
