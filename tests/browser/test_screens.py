"""First screens as they were approved, and that the comparison would see what matters."""

from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pytest

from tests.browser import screens
from tests.browser.test_pages import opened

if TYPE_CHECKING:
    from playwright.sync_api import Browser

VIEWPORT = {"width": screens.SIZE[0], "height": screens.SIZE[1]}
Scheme = Literal["light", "dark"]


@pytest.mark.parametrize(
    ("page_name", "scheme"),
    [("measured", "light"), ("measured", "dark"), ("sweep", "light"), ("comparison", "light")],
)
def test_the_first_screen_is_as_approved(
    browser: "Browser", tmp_path: Path, page_name: str, scheme: Scheme
) -> None:
    with opened(browser, tmp_path, page_name, scheme=scheme, viewport=VIEWPORT) as page:
        screens.check(f"{page_name}-{scheme}", page.screenshot())


@pytest.mark.parametrize(
    "damage",
    [
        ".overview { grid-template-columns: 1fr !important; }",
        ".charts figure { display: none; }",
        "svg path { fill: none !important; stroke: none !important; } .card { background: #888; }",
    ],
)
def test_a_page_that_lost_its_looks_is_seen(
    browser: "Browser", tmp_path: Path, damage: str
) -> None:
    with opened(browser, tmp_path, "measured", viewport=VIEWPORT) as page:
        page.add_style_tag(content=damage)
        shown = screens.picture(page.screenshot())
    assert screens.difference(shown, screens.approved("measured-light")) > screens.MOST_MEAN


def test_approved_pictures_are_small() -> None:
    for file in screens.GOLDEN.glob("*.png"):
        assert file.stat().st_size < 150_000, file.name
