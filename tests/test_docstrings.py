"""Docstrings of functions: what it does, and what it raises."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.sources import FILES, ROOT, tree

pytestmark = pytest.mark.xdist_group("sources")
# errors of commands are documented as exit codes, those of requests as response codes
_BROKER = ROOT / "rmqtool" / "server" / "broker"
TOLD_BY_CODES = (ROOT / "rmqtool" / "cli", _BROKER / "requests", _BROKER / "admin")
Def = ast.FunctionDef | ast.AsyncFunctionDef


class Function(NamedTuple):
    """A public function, or a public method of a public class."""

    file: str
    node: Def
    in_class: bool


def public(path: Path) -> Iterator[Function]:
    """The public functions of a file, without nested ones."""
    name = str(path.relative_to(ROOT))
    for node in tree(path).body:
        if isinstance(node, Def):
            inner = [(node, False)]
        elif isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            inner = [(method, True) for method in node.body if isinstance(method, Def)]
        else:
            continue
        yield from (Function(name, member, held) for member, held in inner if not member.name.startswith("_"))


def raised(node: ast.AST) -> set[str]:
    """Names of errors that a function raises itself, without nested functions and assertion errors."""
    collected: set[str] = set()
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.expr | ast.arguments | Def | ast.ClassDef):
            continue
        names = raised(child)
        if isinstance(child, ast.Raise) and child.exc is not None:
            error = child.exc.func if isinstance(child.exc, ast.Call) else child.exc
            if isinstance(error, ast.Name) and error.id[:1].isupper():
                names.add(error.id)
        if isinstance(child, ast.Try):
            caught = (part for handler in child.handlers if handler.type is not None for part in ast.walk(handler.type))
            names -= {part.id for part in caught if isinstance(part, ast.Name)}
        collected |= names
    return collected - {"AssertionError", "NotImplementedError"}


def lacks_raises(function: Function) -> bool:
    """Whether the docstring, or one it refers to, omits an error."""
    doc = ast.get_docstring(function.node)
    if doc is None:  # documented in a base class
        return False
    return "Raises:" not in doc and not doc.startswith("As :") and bool(raised(function.node))


@pytest.mark.parametrize(
    ("source", "lacks"),
    [
        ('def f():\n """Do."""\n raise ValueError', True),
        ('def f():\n """Do."""\n if x:\n  raise ValueError("x") from None', True),
        ('def f():\n """Do.\n\n Raises:\n  ValueError: x."""\n raise ValueError', False),
        ('def f():\n """As :func:`g`."""\n raise ValueError', False),
        ('def f():\n """Do."""\n def g():\n  raise ValueError', False),
        ('def f():\n """Do."""\n raise err', False),
        ('def f():\n """Do."""\n try:\n  raise ValueError\n except ValueError:\n  pass', False),
        ('class C:\n def f(self):\n  """Do."""\n  raise ValueError', True),
        ("class C:\n def f(self):\n  raise ValueError", False),
    ],
)
def test_what_lacks_is_seen(source: str, lacks: bool, tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text(source, encoding="utf-8")
    node = ast.parse(source).body[0]
    first = node.body[0] if isinstance(node, ast.ClassDef) else node
    assert isinstance(first, Def)
    assert lacks_raises(Function("module.py", first, False)) is lacks


def test_errors_are_told() -> None:
    files = [path for path in FILES if not any(path.is_relative_to(folder) for folder in TOLD_BY_CODES)]
    result = [function for path in files for function in public(path)]
    assert len(result) > 1000
    assert [
        f"{function.file}:{function.node.lineno} {function.node.name}" for function in result if lacks_raises(function)
    ] == []


def test_every_module_class_and_function_says_what_it_is() -> None:
    silent = []
    for path in FILES:
        module = tree(path)
        classes = [node for node in module.body if isinstance(node, ast.ClassDef) and not node.name.startswith("_")]
        functions = [function.node for function in public(path) if not function.in_class]
        without = [node for node in (module, *classes, *functions) if not ast.get_docstring(node)]
        silent += [f"{path.relative_to(ROOT)} {getattr(node, 'name', '')}" for node in without]
    assert silent == []


def commands() -> list[Function]:
    """Functions of commands."""
    return [
        function
        for path in sorted((ROOT / "rmqtool" / "cli").rglob("*.py"))
        for function in public(path)
        for decorator in function.node.decorator_list
        if isinstance(decorator, ast.Call) and isinstance(decorator.func, ast.Name) and decorator.func.id == "command"
    ]


def test_every_command_says_what_it_does() -> None:
    functions = commands()
    assert len(functions) > 50
    short = [function.node.name for function in functions if len((ast.get_docstring(function.node) or "").split()) < 5]
    assert short == []
