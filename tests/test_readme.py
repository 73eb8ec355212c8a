"""README and the manual: examples print what they show, every command is mentioned, every link works."""

import re
import shlex
import shutil
from pathlib import Path

import pytest

from rmqtool.admin.changes.declared import read_declared
from rmqtool.admin.keys import credentials
from rmqtool.cli.man.manual import Page
from rmqtool.remoting.signing import Credentials
from tests import readme
from tests.amounts import by_turns
from tests.cli.test_help import ALL, check_example
from tests.interop.mqadmin import COMMANDS as MQADMIN

WITH_SPARK = {"sql", "spark", "remote"}
WITHOUT_EXAMPLES = {"api", "formats", "settings", "developing", "glossary"}
MARKDOWN = sorted(
    [
        *readme.ROOT.glob("*.md"),
        *(path for part in ("examples", "rmqtool", "tests") for path in (readme.ROOT / part).rglob("*.md")),
    ]
)
LINK = re.compile(r"\[[^]\[]*\]\(([^)\s]+)\)")


WITH_EXAMPLES = [page for page in readme.PAGES if page not in WITHOUT_EXAMPLES]


@by_turns(7)
@pytest.mark.parametrize("page", [page for page in WITH_EXAMPLES if page not in WITH_SPARK])
def test_the_examples_print_what_the_page_says(page: str) -> None:
    check_examples(page)


@by_turns(13)
@pytest.mark.spark
@pytest.mark.xdist_group("spark")
@pytest.mark.parametrize("page", sorted(WITH_SPARK))
def test_the_examples_of_spark_print_what_the_page_says(page: str) -> None:
    check_examples(page)


def check_examples(page: str) -> None:
    """Run the examples in order: later ones build on earlier ones."""
    seen = 0
    with readme.room() as folder:
        readme.prepare(folder)
        for kind, block in readme.blocks(readme.PAGES[page]):
            if kind == "python":
                readme.run_script(block, folder)
            else:
                assert readme.loose(readme.rendered(block, folder)) == readme.loose(block)
            seen += 1
    assert seen


RECIPES = readme.RECIPE.findall(readme.PAGES["recipes"].read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("recipes")
    readme.prepare(folder)
    return folder


@by_turns(3)
@pytest.mark.skipif(not shutil.which("jq", path=readme.environment()["PATH"]), reason="no jq")
@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.split(" --output")[0])
def test_every_recipe_prints_what_it_says(recipe: str, stores: Path) -> None:
    assert "\n# " in recipe, "a recipe without an answer proves nothing"
    assert readme.with_answer(recipe, stores) == recipe


def test_only_some_pages_start_spark() -> None:
    """The other pages run in parallel with the tests that start Spark."""
    starts = re.compile(r"rmqtool (sql|report(?! html)|warm-up) |dump-to-parquet(?!.*--runner local)|pyspark")
    for name, path in readme.PAGES.items():
        ran = [line for _kind, block in readme.blocks(path) for line in block.splitlines()]
        assert (name in WITH_SPARK) == any(starts.search(line) for line in ran), name


def test_pages_without_examples_have_none() -> None:
    for name in WITHOUT_EXAMPLES:
        assert list(readme.blocks(readme.PAGES[name])) == []


@pytest.mark.parametrize("page", readme.PAGES)
def test_commands_that_are_not_run_parse(page: str) -> None:
    text = readme.PAGES[page].read_text(encoding="utf-8")
    for block in re.findall(r"^```sh\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        for line in re.sub(r"(?:\\|(\|))\n", r"\1 ", block).splitlines():
            if command := re.match(r"(?:if |sudo |exec )?(rmqtool .*)", line):
                check_example(shlex.join(first_command(command[1])))


def first_command(line: str) -> list[str]:
    """The words of a shell line before a pipe, a redirection, a semicolon or a comment."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|<>;&")
    lexer.wordchars += "*?[]=:,@%{}$~+!#"
    words = list(lexer)
    ends = [at for at, word in enumerate(words) if set(word) <= set("|<>;&")]
    return words[: min(ends, default=len(words))]


def test_every_kind_of_block_is_known() -> None:
    """Blocks other than ``sh`` (for another machine) and file content are run; text and Java by test_rescue.

    On the developing page, ``py`` is code that tests/server/test_requests.py adds to a copy of the project, and text is
    a diagram.
    """
    for name, path in readme.PAGES.items():
        fences = re.findall(r"^```(.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
        assert set(fences[::2]) <= {"console", "java", "py", "python", "sh", "sql", "text", "toml", "yaml"}, name
        assert name == "developing" or "py" not in fences, name
        assert name == "emergencies" or "java" not in fences, name
        assert name in ("emergencies", "developing") or "text" not in fences, name
        assert set(fences[1::2]) <= {""}, name


def test_files_that_pages_show_are_understood(tmp_path: Path) -> None:
    """Files of keys, and of topics and groups."""
    keys = declared = 0
    for name, path in readme.PAGES.items():
        for block in re.findall(r"^```yaml\n(.*?)^```$", path.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL):
            file = tmp_path / "shown.yaml"
            file.write_text(block)
            if "topics:" in block:
                assert list(read_declared(str(file)).topics) == ["Orders"], name
                declared += 1
            else:
                assert credentials(str(file)) == Credentials("someone", "a secret"), name
                keys += 1
    assert keys
    assert declared


@pytest.mark.parametrize("width", [0, 1, 117, 118, 119, 400])
def test_folding_loses_nothing(width: int) -> None:
    for text in ("x" * width + "\n", "word  " * width + "\n", f"{'wide ' * width}\n\nshort\n"):
        folded = readme.folded(text)
        assert readme.unfolded(folded) == text
        assert max(map(len, folded.splitlines())) <= readme.WIDTH + 2


def test_the_list_of_commands_names_every_one() -> None:
    page = readme.PAGES["commands"].read_text(encoding="utf-8")
    for command in ALL:
        assert f"`{command} " in page or f"`{command}`" in page, command


def test_each_command_of_mqadmin_has_a_row() -> None:
    text = readme.PAGES["mqadmin"].read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| (.*)\| (.*)\|$", text, re.MULTILINE)
    names = [name for name, _command, _note in rows]
    assert sorted(set(names)) == sorted(names)
    assert {command.name for command in MQADMIN} <= {*names}
    reasons = re.findall(r"^- \*\*(.*)\*\*: ", text, re.MULTILINE)
    assert 0 < len(reasons) <= 5
    for name, command, note in rows:
        if not command.strip():
            assert note.startswith(tuple(reasons)), name


@pytest.mark.parametrize("page", ["README", "machine-output"])
def test_the_exit_codes_are_told(page: str) -> None:
    text = readme.PAGES[page].read_text(encoding="utf-8")
    for code in (0, 1, 2, 3, 4, 5, 6, 129, 130, 143):
        assert re.search(rf"^\| {code} \|", text, re.MULTILINE), code


@pytest.mark.parametrize("path", MARKDOWN, ids=lambda path: str(path.relative_to(readme.ROOT)))
def test_lines_are_short(path: Path) -> None:
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        assert len(line) <= 120, f"{path}:{number}"


@pytest.mark.parametrize("path", MARKDOWN, ids=lambda path: str(path.relative_to(readme.ROOT)))
def test_links_lead_somewhere(path: Path) -> None:
    for link in LINK.findall(path.read_text(encoding="utf-8")):
        if not link.startswith(("http:", "https:")):
            target, _, anchor = link.partition("#")
            assert not anchor, "only whole pages are linked"
            assert (path.parent / target).exists(), link


def test_pages_name_each_other_as_the_terminal_needs_it() -> None:
    """A terminal cannot follow a link, so its text is the command that shows the page."""
    for path in readme.MANUAL.glob("*.md"):
        for text, link in re.findall(r"\[([^]\[]*)\]\(([^)\s]+\.md)\)", path.read_text(encoding="utf-8")):
            assert " ".join(text.split()) == f"`rmqtool manual {link.removesuffix('.md')}`", path


def test_readme_is_a_front_page() -> None:
    text = readme.README.read_text(encoding="utf-8")
    assert len(text.encode()) < 12_000
    for topic in Page:
        assert f"](rmqtool/manual/{topic}.md)" in text


def test_a_wheel_has_the_manual() -> None:
    wheel = pytest.importorskip("hatchling.builders.wheel")
    builder = wheel.WheelBuilder(str(readme.ROOT))
    with builder.config.set_build_data({"force_include": {}, "force_include_editable": {}, "artifacts": []}):
        packed = {file.distribution_path for file in builder.recurse_included_files()}
    assert {f"rmqtool/manual/{topic}.md" for topic in Page} <= packed
    assert "rmqtool/main.py" in packed
