"""What a person does with a page: look, point, tab, toggle, print. In a real Chromium."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pytest

from tests.browser.pages import PAGES, html

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

LETTERS = """Math.min(...[...document.querySelectorAll('.plot svg')].flatMap(svg => {
    const scale = svg.getBoundingClientRect().width / svg.viewBox.baseVal.width
    return [...svg.querySelectorAll('text')].map(
        text => scale * parseFloat(getComputedStyle(text).fontSize))
}))"""
STYLE = "getComputedStyle({}).backgroundColor"


@contextmanager
def opened(
    browser: "Browser",
    folder: Path,
    name: str,
    *,
    scheme: Literal["light", "dark"] = "light",
    **options: Any,
) -> "Iterator[Page]":
    """The page of that name; whatever it logs, throws or asks the network for is an error."""
    file = folder / "page.html"
    file.write_bytes(html(name))
    context = browser.new_context(color_scheme=scheme, **options)
    context.set_offline(True)
    page = context.new_page()
    heard: list[str] = []
    page.on("console", lambda message: heard.append(message.text))
    page.on("pageerror", lambda error: heard.append(str(error)))
    page.on("request", lambda request: heard.append(request.url))
    page.goto(file.as_uri())
    yield page
    assert heard == [file.as_uri()]
    context.close()


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize("width", [1400, 400])
def test_nothing_is_logged_or_asked_for_and_nothing_sticks_out(
    browser: "Browser", tmp_path: Path, name: str, width: int
) -> None:
    viewport = {"width": width, "height": 900}
    with opened(browser, tmp_path, name, viewport=viewport) as page:
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.locator("h1").is_visible()


@pytest.mark.parametrize(
    "name", ["measured", "served", "sweep", "plan", "prediction", "comparison"]
)
def test_letters_of_figures_can_be_read_on_a_phone(
    browser: "Browser", tmp_path: Path, name: str
) -> None:
    """Pixels of the smallest letters: a figure of three panels side by side scrolls instead."""
    with opened(browser, tmp_path, name, viewport={"width": 400, "height": 900}) as page:
        assert page.evaluate(LETTERS) >= 8


def test_a_sentence_in_a_table_is_no_tower_on_a_phone(browser: "Browser", tmp_path: Path) -> None:
    """What a part of the ledger is takes 40 to 70 letters: three lines at most."""
    with opened(browser, tmp_path, "measured", viewport={"width": 400, "height": 900}) as page:
        cell = page.locator("td.long").first
        assert cell.evaluate("cell => cell.clientHeight") < 80


def test_a_mark_explains_itself_on_hover_and_on_focus(browser: "Browser", tmp_path: Path) -> None:
    with opened(browser, tmp_path, "measured") as page:
        tip, mark = page.locator("#tip"), page.locator("#point-decode")
        assert tip.is_hidden()
        mark.hover()
        assert "of its roof" in tip.inner_text()
        page.mouse.move(0, 0)
        assert tip.is_hidden()
        mark.focus()
        assert "of its roof" in tip.inner_text()
        assert mark.get_attribute("aria-describedby") == "tip"
        row = page.locator("tr[data-mark=point-decode]")
        assert "lit" in (row.get_attribute("class") or "")
        page.keyboard.press("Escape")
        assert tip.is_hidden()


def test_words_are_explained_to_who_tabs_to_them(browser: "Browser", tmp_path: Path) -> None:
    with opened(browser, tmp_path, "measured") as page:
        for _ in range(8):
            page.keyboard.press("Tab")
            if page.evaluate("document.activeElement.tagName") == "ABBR":
                break
        assert page.evaluate("document.activeElement.tagName") == "ABBR"
        assert page.locator("#tip").is_visible()


def test_a_row_lights_its_mark(browser: "Browser", tmp_path: Path) -> None:
    with opened(browser, tmp_path, "measured") as page:
        page.locator("tr[data-mark=point-prefill]").focus()
        assert "lit" in (page.locator("#point-prefill").get_attribute("class") or "")


def test_a_layer_is_faded_and_comes_back(browser: "Browser", tmp_path: Path) -> None:
    with opened(browser, tmp_path, "measured") as page:
        toggle = page.get_by_role("button", name="decode", exact=True)
        mark = page.locator("#point-decode")
        toggle.click()
        assert toggle.get_attribute("aria-pressed") == "false"
        assert mark.evaluate("mark => getComputedStyle(mark).opacity") == "0.06"
        assert (
            page.locator("#point-prefill").evaluate("mark => getComputedStyle(mark).opacity") == "1"
        )
        toggle.focus()
        page.keyboard.press("Enter")
        assert toggle.get_attribute("aria-pressed") == "true"
        assert mark.evaluate("mark => getComputedStyle(mark).opacity") == "1"


def test_the_theme_follows_the_system_until_a_person_chooses(
    browser: "Browser", tmp_path: Path
) -> None:
    background = f"() => {STYLE.format('document.body')}"
    with opened(browser, tmp_path, "measured") as page:
        light = page.evaluate(background)
    with opened(browser, tmp_path, "measured", scheme="dark") as page:
        dark = page.evaluate(background)
        page.get_by_role("button", name="Light or dark").click()
        assert page.evaluate(background) == light
    assert light != dark


def test_print_is_light_and_whole(browser: "Browser", tmp_path: Path) -> None:
    with opened(browser, tmp_path, "measured", scheme="dark") as page:
        page.emulate_media(media="print")
        assert page.evaluate(f"() => {STYLE.format('document.body')}") == "rgb(255, 255, 255)"
        assert page.locator("#theme").is_hidden()
        assert page.locator(".toggles").first.is_hidden()
        assert page.locator("#glossary").is_visible()
        assert page.pdf(format="A4").startswith(b"%PDF")


def test_without_javascript_all_is_there(browser: "Browser", tmp_path: Path) -> None:
    with opened(browser, tmp_path, "measured", java_script_enabled=False) as page:
        assert page.locator("#theme").is_hidden()
        assert page.locator("figure svg").count() >= 5
        assert page.locator("abbr[title]").count() > 5
        assert page.locator("#point-decode > title").count() == 1
