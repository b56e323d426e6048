"""A real Chromium, with the network blocked. Where none exists the tests are skipped, but not in CI."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def chromium_path() -> str | None:
    """The browser that LLMPROF_CHROMIUM names, or one of the system's."""
    named = os.environ.get("LLMPROF_CHROMIUM")
    if named:
        return named if Path(named).is_file() else None
    return next((path for name in NAMES if (path := shutil.which(name))), None)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what lies beside this file where there is no browser, and CI may be without one."""
    if chromium_path() or (os.environ.get("CI") and not os.environ.get("LLMPROF_NO_BROWSER")):
        return
    reason = "no Chromium on this machine; install one, or name it in LLMPROF_CHROMIUM"
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session")
def browser() -> "Iterator[Browser]":
    from playwright.sync_api import sync_playwright

    path = chromium_path()
    assert path, "CI has no Chromium: install one, or set LLMPROF_NO_BROWSER=1 to go without"
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(
            executable_path=path, args=["--disable-dev-shm-usage"]
        )
        yield chromium
        chromium.close()
