"""Every default of a setting equals that of the brokers, read from their classes (test_broker_conf)."""

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rmqtool.rules.releases import RELEASES, release_named
from rmqtool.server.broker.admin.status import _DEFAULTS
from rmqtool.store.config.settings import settings_of

ROOT = Path(__file__).parents[2]
# where we answer otherwise on purpose
_OTHER = {
    "transactionCheckInterval": "by release, at its only use",
    "totalReplicas": "0 stands for a group whose size is not stated: nothing is counted then",
    "listenPort": "BrokerStartup sets 10911 before it reads the file",
}
SERVED = tuple(map(release_named, RELEASES))


def _defaults() -> Iterator[tuple[str, str, Any]]:
    """(module, setting, default) of every call that reads a setting."""
    for path in sorted((ROOT / "rmqtool").rglob("*.py")):
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call):
                continue
            nodes = list(node.args) + [keyword.value for keyword in node.keywords if keyword.arg == "default"]
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if called == "setting":
                nodes = nodes[1:]
            elif called not in ("flag", "number"):
                continue
            if len(nodes) != 2 or not isinstance(nodes[0], ast.Constant) or not isinstance(nodes[0].value, str):
                continue
            names = {n.id for n in ast.walk(nodes[1]) if isinstance(n, ast.Name)}
            scope = vars(importlib.import_module(module)) if names else {}
            if names <= scope.keys() and not any(isinstance(n, ast.Call) for n in ast.walk(nodes[1])):
                yield module, nodes[0].value, eval(ast.unparse(nodes[1]), dict(scope))


def _wrong(name: str, taken: Any) -> list[str]:
    """Releases that have the setting with a different default."""
    known = {release: settings_of(release)[name].default for release in SERVED if name in settings_of(release)}
    return [
        f"{name}: {taken!r}, {release} has {value!r}" for release, value in known.items() if value not in (None, taken)
    ]


def test_defaults_that_are_read() -> None:
    result = list(_defaults())
    assert len(result) > 45
    wrong = {name: lines for _module, name, taken in result if name not in _OTHER and (lines := _wrong(name, taken))}
    assert wrong == {}


def test_defaults_that_are_told() -> None:
    for name, text in _DEFAULTS.items():
        defaults = [str(settings_of(setting)[name].default) for setting in SERVED if name in settings_of(setting)]
        assert {value.lower() for value in defaults} == {text.lower()}, name


def test_defaults_by_release() -> None:
    for release in SERVED:
        assert release.transaction_check_interval == settings_of(release)["transactionCheckInterval"].default
