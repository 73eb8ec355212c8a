"""Check the broker's properties file: what a broker reads in it, and whether the store's files agree with it."""

from typing import Any

from rmqtool.rules.releases import Release
from rmqtool.store.check.advice.steps import Step, by_hand
from rmqtool.store.check.codes.code import INFO, WARNING
from rmqtool.store.check.common.context import Context
from rmqtool.store.config.fit import IgnoredLine, Misfit, find_ignored_lines
from rmqtool.store.layout.broker_conf import BrokerConf


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
    if conf.options:
        for line in find_ignored_lines(conf, ctx.rules.release):
            code, about = _code_of(line, conf, ctx.rules.release, asked=asked)
            # a misspelt name is covered by the step for the right one
            if steps := steps_by_setting.get(line.near or line.name):
                about["steps"] = steps
            ctx.found.add(code, conf.path, **about)


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
