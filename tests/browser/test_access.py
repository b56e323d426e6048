"""Contrast, names and structure of every page, in both themes."""

from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pytest

from tests.browser.pages import PAGES
from tests.browser.test_pages import opened

if TYPE_CHECKING:
    from playwright.sync_api import Browser

FAINT = """() => {
  const numbers = color => (color.match(/[0-9.]+/g) || []).map(Number);
  const light = color => {
    const [r, g, b] = numbers(color).map(v => v / 255)
      .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ratio = element => {
    let below = element;
    while (below.parentElement && numbers(getComputedStyle(below).backgroundColor)[3] === 0)
      below = below.parentElement;
    const svg = element.closest("svg");
    const ink = getComputedStyle(element)[svg ? "fill" : "color"];
    const a = light(ink), b = light(getComputedStyle(below).backgroundColor);
    return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  };
  const told = element => [...element.childNodes].some(n => n.nodeType === 3 && n.data.trim());
  return [...document.querySelectorAll("body *:not(script):not(svg *)")]
    .filter(e => told(e) && e.checkVisibility() && ratio(e) < 4.5)
    .map(e => `${e.tagName}.${e.className}: ${ratio(e).toFixed(2)} ${e.textContent.trim().slice(0, 40)}`);
}"""

NAMELESS = """() => {
  const all = selector => [...document.querySelectorAll(selector)];
  const found = [];
  const ids = all("[id]").map(e => e.id);
  found.push(...ids.filter((id, i) => ids.indexOf(id) !== i).map(id => `id twice: ${id}`));
  found.push(...all("button").filter(e => !e.textContent.trim()).map(() => "a button without a name"));
  found.push(...all("figure > .plot > svg").filter(e => !e.querySelector(":scope > title")).map(() => "a chart without a title"));
  found.push(...all("table").filter(e => !e.caption || !e.caption.textContent.trim()).map(() => "a table without a caption"));
  found.push(...all("thead th").filter(e => e.scope !== "col").map(e => `no column: ${e.textContent}`));
  found.push(...all("[aria-labelledby]").flatMap(e => e.getAttribute("aria-labelledby").split(" "))
    .filter(id => !document.getElementById(id)).map(id => `no label: ${id}`));
  found.push(...all("a[href^='#']").filter(e => !document.querySelector(e.getAttribute("href"))).map(e => `nowhere: ${e.href}`));
  if (all("h1").length !== 1) found.push("not one h1");
  if (!document.documentElement.lang || !document.title) found.push("no language or title");
  return found;
}"""


@pytest.mark.parametrize("name", PAGES)
def test_all_text_stands_out_and_everything_has_a_name(
    browser: "Browser", tmp_path: Path, name: str
) -> None:
    """Contrast of at least 4.5 (WCAG 2.1, 1.4.3); names, labels and targets (1.3.1, 2.4.4, 4.1.2)."""
    schemes: tuple[Literal["light", "dark"], ...] = ("light", "dark")
    for scheme in schemes:
        with opened(browser, tmp_path, name, scheme=scheme) as page:
            assert page.evaluate(FAINT) == []
            assert page.evaluate(NAMELESS) == []


def test_a_caveat_says_what_it_means_on_hover(browser: "Browser", tmp_path: Path) -> None:
    with opened(browser, tmp_path, "measured") as page:
        page.locator(".caveats abbr", has_text="counted").first.hover()
        assert "GB/s are a lower bound" in page.locator("#tip").inner_text()


def test_faint_text_and_missing_names_would_be_found(browser: "Browser", tmp_path: Path) -> None:
    with opened(browser, tmp_path, "measured") as page:
        page.add_style_tag(content=".note { color: #bbb !important; }")
        page.evaluate("document.querySelector('caption').remove()")
        assert page.evaluate(FAINT)
        assert page.evaluate(NAMELESS) == ["a table without a caption"]
