"""``report html``: one file, valid, without scripts and network, whatever names a store has; looked at in a browser."""

import errno
import os
import re
import shutil
from collections.abc import Iterator
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from formats.message.build import compose, pack
from rmqtool.services.overview.overview import look_over
from rmqtool.store.disk import outputs
from rmqtool.store.layout.paths import StoreLayout
from tests.amounts import by_turns
from tests.cli.running import rmqtool
from tests.conftest import Unpacked
from tests.services.build import HOST, TIME, Builder
from tests.store.helpers import tree

EVIL = "<script>alert('x')</script>"
HOSTILE = (EVIL, "</style><b>", "\"'&amp;{{7*7}}{% raw %}", "\x1b[31m\x00\x07red", "‮evil", "长主题")
CASES = ("broker", "broker-5.5.0", "magic-broken-last-file", "large-bodies", "commitlog-deleted")
VOID = {"meta", "link", "br", "hr", "img", "input"}
WIDTHS = (1280, 390)
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


class Page(HTMLParser):
    """Checks nesting, and collects elements, texts and ids."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if data.strip():
            self.texts.append(data.strip())


def written(store: Path, out: Path, *args: str, code: int = 0) -> str:
    """The page about a store."""
    result = rmqtool("report", "html", store, out, "--at", TIME + 10**6, *args)
    assert result.code == code, result.err
    return out.read_text(encoding="utf-8")


def hostile(tmp_path: Path) -> Path:
    """A store whose topics, groups, queues and dead letters have hostile names."""
    builder = Builder()
    for number, name in enumerate(HOSTILE):
        for at in range(20 * (number + 1)):
            builder.log += pack(
                compose(
                    topic=name.encode(), queue_id=at % 2 if at < 4 else 0, queue_offset=at,
                    physical_offset=len(builder.log), body=EVIL.encode(), born_timestamp=TIME,
                    store_timestamp=TIME + at,
                    born_address=HOST, born_port=1, store_address=HOST, store_port=2,
                    properties=f"KEYS\x01{EVIL}".encode(),
                )
            )  # fmt: skip
    builder.put("%DLQ%G&lt;", properties={"RETRY_TOPIC": EVIL}, body=EVIL.encode())
    builder.log += b"garbage" + b"\xff" * 40
    builder.put("behind", body=b"cut")
    group = EVIL.replace("/", "\\u002f")
    return builder.write(
        tmp_path, {"consumerOffset.json": f'{{"offsetTable":{{"behind@{group}":{{"0":0}}, "T@":{{"0":-4}}}}}}'}
    )


def test_hostile_names_are_texts(tmp_path: Path) -> None:
    html = written(hostile(tmp_path), tmp_path / "out.html")
    page = Page(html)
    assert {tag for tag, _attributes in page.elements} & {"script", "b", "iframe", "object", "link", "img"} == set()
    assert "&lt;script&gt;" in html
    assert any("<script>alert('x')</script>" in text for text in page.texts)
    assert "长主题" in html
    assert "49" not in [text for text in page.texts if "7*7" in text]
    assert any("{{7*7}}{% raw %}" in text for text in page.texts)
    assert not set(html) & {chr(code) for code in (*range(9), *range(11, 32), *range(127, 160), 0x202E)}
    assert not [name for _tag, attributes in page.elements for name in attributes if name.startswith("on")]


@pytest.mark.parametrize(
    "case", ["broker", "broker-5.5.0", "magic-broken-last-file", "large-bodies", "commitlog-deleted"]
)
def test_a_page_is_valid_and_closed(case: str, golden: Unpacked, tmp_path: Path) -> None:
    store = golden(case)
    before = tree(store)
    html = written(store, tmp_path / "out.html")
    assert tree(store) == before
    page = Page(html)
    assert "default-src 'none'" in html
    assert not re.search(r"https?://|@import|src=|url\((?!#)", html)
    ids = [attributes["id"] for _tag, attributes in page.elements if "id" in attributes]
    assert len(ids) == len({*ids})
    links = [attributes.get("href") for tag, attributes in page.elements if tag == "a"]
    assert {f"#{each}" for each in ids} >= {*links}
    for tag, attributes in page.elements:
        if tag == "svg":
            assert attributes.get("aria-label") or attributes.get("aria-hidden") == "true"
        if attributes.get("role") == "region":
            assert attributes["aria-label"]
            assert attributes["tabindex"] == "0"


def test_the_map_shows_the_cut(golden: Unpacked, tmp_path: Path) -> None:
    html = written(golden("magic-broken-last-file"), tmp_path / "out.html")
    assert html.count("the next start ends the log here, at offset 156,211") >= 2  # beside the row, and in the table
    page = Page(html)
    kinds = [attributes.get("class") for _tag, attributes in page.elements]
    assert kinds.count("cut") == 2  # in the legend and in the file
    assert "damaged" in kinds
    assert "rmqtool salvage" in html


def test_dead_letters_lag_and_delays_are_there(golden: Unpacked, tmp_path: Path) -> None:
    store = golden("broker")
    overview = look_over(StoreLayout(str(store)), TIME + 10**6)
    texts = Page(written(store, tmp_path / "out.html")).texts
    for letter in overview.letters:
        assert letter.cause in texts
    assert f"{sum(topic.messages for topic in overview.topics):,}" in texts
    assert {topic.topic for topic in overview.topics} <= {*texts}


def test_nothing_is_written_over(golden: Unpacked, tmp_path: Path) -> None:
    out = tmp_path / "out.html"
    out.write_text("mine")
    result = rmqtool("report", "html", golden("broker"), out)
    assert (result.code, out.read_text()) == (4, "mine")
    link = tmp_path / "link.html"
    link.symlink_to(tmp_path / "nowhere")
    assert rmqtool("report", "html", golden("broker"), link).code == 4
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize("words", [("report", "html", "STORE", "OUT"), ("evidence", "STORE", "OUT")], ids=" ".join)
def test_a_file_needs_its_directory(words: tuple[str, ...], golden: Unpacked, tmp_path: Path) -> None:
    place = {"STORE": golden("clean"), "OUT": tmp_path / "no" / "such" / "out"}
    result = rmqtool(*(place.get(word, word) for word in words))
    assert (result.code, result.err) == (4, f"error: {tmp_path / 'no' / 'such'}: no such directory: make it first\n")
    assert not (tmp_path / "no").exists()


@pytest.mark.parametrize("command", ["salvage", "export"])
def test_a_store_is_made_with_the_directories_above(command: str, golden: Unpacked, tmp_path: Path) -> None:
    assert rmqtool(command, golden("clean"), tmp_path / "no" / "such" / "new").code == 0
    assert [path.name for path in (tmp_path / "no" / "such").iterdir()] == ["new"]


@pytest.mark.parametrize("command", [("report", "html"), ("evidence",)])
def test_a_full_disk_is_named_with_the_file(
    command: tuple[str, ...], golden: Unpacked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def make_file(_path: str, _data: bytes) -> bool:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(outputs, "make_file", make_file)
    result = rmqtool(*command, golden("clean"), tmp_path / "out")
    assert (result.code, result.err) == (3, f"error: {tmp_path}/out: cannot be written: No space left on device\n")


def test_not_into_the_store(golden_copy: Unpacked) -> None:
    store = golden_copy("clean")
    result = rmqtool("report", "html", store, store / "commitlog" / "out.html")
    assert result.code == 4
    assert "lies in the store" in result.err
    assert not (store / "commitlog" / "out.html").exists()


def test_what_could_not_be_read_is_named(golden_copy: Unpacked, tmp_path: Path) -> None:
    store = golden_copy("broker")
    for name in ("topics.json", "topics.json.bak"):
        (store / "config" / name).write_bytes(b"{")
    html = written(store, tmp_path / "out.html", code=1)
    assert "<h3>Warnings</h3>" in html
    assert "config/topics.json" in html


def test_without_names(golden: Unpacked, tmp_path: Path) -> None:
    store = golden("broker")
    html = written(store, tmp_path / "out.html", "--redact")
    Page(html)
    for name in ("Orders", "Payments", "lab-consumer", str(store), "order-1"):
        assert name not in html
    assert "name-1" in html
    assert "%DLQ%name-" in html


def test_hostile_names_are_replaced_whole(tmp_path: Path) -> None:
    html = written(hostile(tmp_path), tmp_path / "out.html", "--redact")
    for part in ("alert", "script", "7*7", "red", "evil", "主题"):
        assert not re.search(rf"\b{re.escape(part)}\b", re.sub(r"<[^>]+>", " ", html.split("</style>")[-1]))


@by_turns(3)
def test_ten_thousand_topics_fit(tmp_path: Path) -> None:
    builder = Builder()
    for number in range(10_000):
        builder.put(f"a-rather-long-name-of-a-topic-{number:05d}", number % 8, body=b"x")
    store = tmp_path / "store"
    (store / "commitlog").mkdir(parents=True)
    (store / "commitlog" / f"{0:020d}").write_bytes(bytes(builder.log).ljust(4 << 20, b"\0"))
    (store / "consumequeue").mkdir()
    out = tmp_path / "out.html"
    result = rmqtool("report", "html", store, out)
    assert result.code == 0
    assert 10_000 < out.stat().st_size < 5 << 20
    html = out.read_text()
    assert "9,900 more topics have fewer bytes." in html


def test_a_page_is_as_private_as_the_store(golden_copy: Unpacked, tmp_path: Path) -> None:
    store = golden_copy("clean")
    store.chmod(0o700)
    before = os.umask(0o022)
    try:
        written(store, tmp_path / "out.html")
    finally:
        os.umask(before)
    assert (tmp_path / "out.html").stat().st_mode & 0o777 == 0o600


# -- in a browser -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    sync_api = pytest.importorskip("playwright.sync_api", reason="no playwright to drive a browser")
    if BROWSER is None:
        pytest.skip("no Chromium on this machine: apt-get install chromium")
    with sync_api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@by_turns(7)
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("what", ["broker", "magic-broken-last-file", "hostile"])
def test_in_a_browser(what: str, width: int, scheme: str, browser: Any, golden: Unpacked, tmp_path: Path) -> None:
    out = tmp_path / "out.html"
    written(hostile(tmp_path) if what == "hostile" else golden(what), out)
    seen: list[str] = []
    with browser.new_context(color_scheme=scheme, viewport={"width": width, "height": 900}) as context:
        page = context.new_page()
        for event in ("console", "pageerror", "dialog"):
            page.on(event, lambda arg: seen.append(str(arg)))
        page.on("request", lambda request: seen.append(request.url))
        page.goto(out.as_uri())
        assert seen == [out.as_uri()]  # no error, no dialog, nothing else asked for
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        dark = page.evaluate("getComputedStyle(document.documentElement).backgroundColor") == "rgb(25, 25, 23)"
        assert dark == (scheme == "dark")
        bars = page.locator("svg.chart rect.rect").first.evaluate("element => getComputedStyle(element).fill")
        assert bars not in ("rgb(0, 0, 0)", "none")
        assert page.get_by_role("main").count() == page.get_by_role("banner").count() == 1
        assert page.get_by_role("navigation", name="Sections").count() == 1
        levels = page.eval_on_selector_all("h1,h2,h3", "all => all.map(each => +each.tagName[1])")
        assert levels[0] == 1
        assert levels.count(1) == 1
        assert all(after - before <= 1 for before, after in pairwise(levels))
        for title in ("State", "Map of the log", "Traffic", "Consumer groups", "Dead letters"):
            assert page.get_by_role("region", name=title, exact=True).count() >= 1
        assert page.get_by_role("img", name="commitlog/").count() >= 1


def test_by_keyboard(browser: Any, golden: Unpacked, tmp_path: Path) -> None:
    out = tmp_path / "out.html"
    written(golden("broker"), out)
    with browser.new_context(viewport={"width": 1280, "height": 900}) as context:
        page = context.new_page()
        page.goto(out.as_uri())
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.textContent") == "Skip to the report"
        page.keyboard.press("Enter")
        page.wait_for_url(f"{out.as_uri()}#main")
        for _ in range(60):
            page.keyboard.press("Tab")
            if page.evaluate("document.activeElement.tagName") == "SUMMARY":
                break
        assert page.get_by_role("table").count() > 0
        before = page.get_by_role("table").count()
        page.keyboard.press("Enter")
        assert page.get_by_role("table").count() == before + 1
        assert page.get_by_role("columnheader", name="First message").count() >= 1


@by_turns(7)
def test_labels_of_charts_do_not_overlap(browser: Any, golden: Unpacked, tmp_path: Path) -> None:
    for case in ("broker", "broker-5.3.3"):
        out = tmp_path / f"{case}.html"
        written(golden(case), out)
        with browser.new_context(viewport={"width": 1280, "height": 900}) as context:
            page = context.new_page()
            page.goto(out.as_uri())
            for axis in page.locator("svg.chart .axis.x").all():
                boxes = [each.bounding_box() for each in axis.locator("text").all() if each.text_content()]
                assert len(boxes) > 1
                assert all(first["x"] + first["width"] < second["x"] for first, second in pairwise(boxes))
            # a mean between intervals without messages is a dot
            assert page.locator("svg.chart circle").count() > 1


def test_lines_of_small_text_can_be_read(browser: Any, golden: Unpacked, tmp_path: Path) -> None:
    out = tmp_path / "out.html"
    written(golden("magic-broken-last-file"), out)
    for scheme in ("light", "dark"):
        with browser.new_context(color_scheme=scheme) as context:
            page = context.new_page()
            page.goto(out.as_uri())
            low = page.evaluate(_CONTRAST)
            assert low == []


# texts whose contrast with what is behind them is below that of WCAG 2.2 AA
_CONTRAST = """() => {
  const numbers = text => text.match(/[0-9.]+/g).map(Number);
  const light = rgb => rgb.slice(0, 3).map(c => c / 255)
    .map(c => c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
    .reduce((sum, c, at) => sum + c * [0.2126, 0.7152, 0.0722][at], 0);
  const behind = element => {
    for (let at = element; at; at = at.parentElement) {
      const rgb = numbers(getComputedStyle(at).backgroundColor);
      if (rgb.length < 4 || rgb[3] > 0) return rgb;
    }
    return [255, 255, 255];
  };
  const low = [];
  for (const element of document.querySelectorAll("p,li,dt,dd,th,td,a,code,summary,caption,figcaption,h1,h2,h3,span")) {
    const texts = [...element.childNodes].some(node => node.nodeType === 3 && node.textContent.trim());
    if (!texts) continue;
    const both = [light(numbers(getComputedStyle(element).color)), light(behind(element))];
    const [one, other] = both.sort((a, b) => b - a);
    if ((one + 0.05) / (other + 0.05) < 4.5) low.push(element.tagName + ": " + element.textContent.slice(0, 30));
  }
  return low;
}"""
