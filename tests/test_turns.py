"""Every case gets its turn: two rules with the same number of runs might never select the same case."""

import ast
from math import gcd
from pathlib import Path

import pytest

from tests import amounts
from tests.interop.conftest import OF_ONE_RELEASE

HERE = Path(__file__).parent


def calls(node: ast.AST, name: str) -> list[int]:
    """The numeric first arguments of all calls of a function."""
    return [
        call.args[0].value
        for call in ast.walk(node)
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == name
        if isinstance(call.args[0], ast.Constant) and isinstance(call.args[0].value, int)
    ]


def is_dealt(node: ast.AST) -> bool:
    """Whether marks deal out the cases of a test, or of a module, without a number of runs."""
    return any(f"mark.{name}" in ast.unparse(node) for name in amounts.DEALT)


def test_shares_of_a_test_have_no_divisor_in_common() -> None:
    seen = 0
    for path in HERE.rglob("test_*.py"):
        module = ast.parse(path.read_text(encoding="utf-8"))
        assigned = [node for node in module.body if isinstance(node, ast.Assign)]
        all_dealt = any(map(is_dealt, assigned))
        shares = [step for node in assigned for step in calls(node, "every")]
        for node in module.body:
            if not isinstance(node, ast.FunctionDef):
                continue
            head = ast.Module([ast.Expr(decorator) for decorator in node.decorator_list], [])
            dealt = calls(head, "by_turns")
            if not dealt and (all_dealt or is_dealt(head)):
                dealt = [amounts.DEALT_RUNS]
            place = path.relative_to(HERE).with_suffix("")
            if not dealt and place.as_posix() in amounts.SLOW_MODULES:
                dealt = [amounts.SLOW_MODULE_RUNS]
            elif not dealt and place.parts[0] in amounts.FOLDERS_OF_CASES:
                dealt = [amounts.FOLDERS_OF_CASES[place.parts[0]]]
            for runs in dealt:
                seen += 1
                steps = [*calls(node, "every"), *shares]
                assert all(gcd(runs, step) == 1 for step in steps), f"{path}: {node.name}"
                if path.stem in OF_ONE_RELEASE:
                    assert runs % 2, f"{path}: {node.name}"
    assert seen > 100
    assert all((HERE / f"{name}.py").is_file() for name in amounts.SLOW_MODULES)


@pytest.mark.parametrize("runs", [1, 2, 3, 5])
def test_each_has_one_turn(runs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(amounts, "ALL", False)
    cases, taken = list(range(7)), []
    for turn in range(-1, runs - 1):
        monkeypatch.setattr(amounts, "TURN", turn)
        share = [number for number in cases if amounts.has_turn(number, runs)]
        assert len(amounts.every(runs, cases)) in (len(cases) // runs, -(-len(cases) // runs))
        taken += share
    assert sorted(taken) == cases
