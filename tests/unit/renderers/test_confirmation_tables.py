"""A confirmed switch on the page and in Markdown: predicted, measured, and why not."""

import re

from llmprof.renderers.confirmation_tables import confirmation_tables
from llmprof.renderers.html_page import render_html
from llmprof.renderers.markdown_table import render_markdown
from tests.unit.renderers.report_factory import a_report
from tests.unit.renderers.richer_runs import a_confirmation, confirmed


def test_the_page_sets_what_was_measured_beside_what_was_predicted() -> None:
    page = render_html(confirmed()).decode()
    words = " ".join(re.sub(r"<[^>]+>", " ", page).split())
    assert "What a switch really gave" in words
    assert "Predicted, then measured" in words
    assert "predicted at 13:59:00 UTC (tier C), measured after that in 8 pairs" in words
    assert "6 of 8 are the same (75 %)" in words
    assert "OUTSIDE the interval" in words


def test_nothing_is_said_where_nothing_was_confirmed() -> None:
    assert "then measured" not in render_html(a_report()).decode()


def test_residuals_add_up_to_the_difference_of_the_steps() -> None:
    decode = next(one for one in a_confirmation().phases if one.phase.value == "decode")
    table = next(t for t in confirmation_tables(a_confirmation()) if t.caption.startswith("decode"))
    assert len(table.rows) == len(decode.residuals)
    for row, part in zip(table.rows, decode.residuals, strict=True):
        assert row[-1].startswith("+" if part.residual_s >= 0 else "-")


def test_markdown_has_the_outcome_in_the_open() -> None:
    text = render_markdown((confirmed(),)).decode()
    outcome = text.index("**Predicted, then measured.**")
    assert "OUTSIDE the interval" in text[outcome : text.index("<details>", outcome)]
