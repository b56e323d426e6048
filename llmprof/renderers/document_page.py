"""A self-contained page of facts, figures and tables, for documents other than a run."""

from collections.abc import Sequence
from dataclasses import dataclass

from llmprof.renderers.page_template import page_template
from llmprof.renderers.tables import Table
from llmprof.renderers.what_ran import Fact
from llmprof.schema.measurement import Caveat


@dataclass(frozen=True, slots=True)
class Page:
    title: str
    brand: str
    """What the tool did, beside its name."""
    when: str
    stamps: tuple[str, ...]
    facts: tuple[Fact, ...]
    headline: str
    figures: tuple[tuple[str, str], ...]
    """SVG that is safe to put into HTML, and its caption."""
    sections: tuple[tuple[str, tuple[Table, ...]], ...]
    caveats: Sequence[Caveat]
    question: str = ""
    """That the document was made to answer; none is known for most."""


def render_page(page: Page) -> bytes:
    """UTF-8, no network, no date of its own: equal for equal pages."""
    return page_template("document.html.j2").render(page=page).encode()
