"""The page: self-contained, safe, the same every time, complete at the edges."""

import json
import re
from functools import cache
from html.parser import HTMLParser

import pytest

from llmprof.analysis.report import build_report
from llmprof.renderers.html_page import render_html
from llmprof.schema.report import Report
from tests.predicted_runs import a_base_run
from tests.unit.renderers import degenerate, timelines
from tests.unit.renderers.report_factory import a_report

PAGES = {
    "usual": a_report,
    "measured": lambda: build_report(a_base_run()),
    "served": timelines.served,
    "largest": timelines.largest,
    "nothing": degenerate.nothing,
    "hostile": degenerate.hostile,
    "above": degenerate.above_the_roof,
    "odd": degenerate.odd,
}


@cache
def page(name: str) -> str:
    report: Report = PAGES[name]()
    return render_html(report).decode()


class Outline(HTMLParser):
    """Tags, ids, and the text of what is no script or style."""

    VOID = frozenset({"meta", "br", "link", "img", "input", "hr"})

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words = ""
        self.scripts: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "script" in self.open:
            self.scripts.append(data)
        elif "style" not in self.open:
            self.words += f"{data} "

    def values(self, attribute: str) -> list[str]:
        return [value for _, attrs in self.tags if (value := attrs.get(attribute))]


@pytest.mark.parametrize("name", PAGES)
def test_page_is_well_formed_and_every_id_is_unique(name: str) -> None:
    outline = Outline(page(name))
    assert outline.open == []
    ids = outline.values("id")
    assert len(ids) == len(set(ids))
    for attribute in ("aria-labelledby", "xlink:href"):
        for value in outline.values(attribute):
            assert {part.removeprefix("#") for part in value.split()} <= set(ids)
    assert set(re.findall(r"url\(#([^)]+)\)", page(name))) <= set(ids)


@pytest.mark.parametrize("name", PAGES)
def test_page_reaches_for_nothing(name: str) -> None:
    outline = Outline(page(name))
    policy = next(attrs["content"] for tag, attrs in outline.tags if attrs.get("http-equiv"))
    assert policy == (
        "default-src 'none'; img-src data:; style-src 'unsafe-inline'; "
        "script-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
    )
    assert not {tag for tag, _ in outline.tags} & {"link", "img", "iframe", "object", "base"}
    references = outline.values("src") + outline.values("href") + outline.values("xlink:href")
    assert all(reference.startswith("#") for reference in references)
    assert "url(http" not in page(name)
    assert "@import" not in page(name)


def test_page_is_the_same_every_time_and_small() -> None:
    assert render_html(a_report()).decode() == page("usual")
    assert len(page("usual").encode()) < 400_000


def test_names_from_files_cannot_become_markup() -> None:
    outline = Outline(page("hostile"))
    assert len([tag for tag, _ in outline.tags if tag == "script"]) == 2
    assert outline.words.count('</script><script>alert("x")</script>') >= 5
    assert not any("alert(" in script for script in outline.scripts[1:])


def test_data_in_the_page_is_the_judged_report() -> None:
    data = json.loads(Outline(page("hostile")).scripts[0])
    report = degenerate.hostile()
    assert data["run"]["model"]["name"] == degenerate.HOSTILE
    assert data["headline"] == report.headline
    assert data["ledgers"][1]["step_s"]["point"] == report.ledgers[1].step_s.point
    assert "rounds" not in data["run"]


def test_first_screen_has_the_answers_with_intervals() -> None:
    words = " ".join(Outline(page("usual")).words.split())
    first = words[: words.index("Read with care")]
    for expected in (
        "smollm2-135m, 135 M parameters",
        "RANDOM WEIGHTS",
        "15.6 ms per step [15.1, 16.1] ms",
        "own cost not known",
        "What limits memory side memory side 84 % [81, 87]",
        "How saturated ◐ unsaturated 76 % [74, 78] of the read ceiling",
        "66 % [64, 68] of its roof",
        "rejected",
    ):
        assert expected in first


def test_every_chart_has_words_and_a_table() -> None:
    outline = Outline(page("usual"))
    charts = [attrs for tag, attrs in outline.tags if tag == "svg"]
    assert len(charts) == 4  # hand-written: no course of a response in it
    assert all(attrs["role"] == "img" for attrs in charts)
    marks = outline.values("data-mark")
    assert marks[:4] == [
        "point-prefill",
        "point-decode",
        "point-decode-projections",
        "point-decode-attention",
    ]
    assert marks[4].startswith("part-prefill-")
    drawn = set(marks) & set(outline.values("id"))
    assert {mark for mark in marks if mark.startswith(("point", "part"))} <= drawn
    assert set(outline.values("data-layer")) >= {"prefill", "decode", "measured-ceilings", "loss"}
    assert "decode: 1.09 FLOP/byte, 21.7 GFLOP/s, 66 % of its roof" in outline.words


def test_what_is_beyond_the_roof_is_drawn_beyond_it() -> None:
    assert "132 % [128, 136] of its roof" in " ".join(Outline(page("above")).words.split())
    assert 'style="width:100.0%"' in page("above")
    assert 'style="left:75.8%"' in page("above")  # 1 / 1.32


def test_nothing_measured_still_makes_a_page() -> None:
    words = " ".join(Outline(page("nothing")).words.split())
    assert "NO CEILINGS: nothing is judged" in words
    assert "No phase was measured." in words
    assert "No grouped pass: time was not split." in words


def test_reasons_are_given_once_and_negative_parts_as_they_are() -> None:
    words = Outline(page("odd")).words
    assert words.count("the step varies by 14 %") == 2  # one card per phase
    assert "-10 %" in Outline(page("odd")).words


def test_the_first_screen_names_the_best_levers_and_leads_to_the_others() -> None:
    outline = Outline(page("measured"))
    words = " ".join(outline.words.split())
    first = words[: words.index("What would help Each")]
    assert "What would help most" in first
    assert {"#levers", "#caveats"} <= set(outline.values("href"))


def test_a_response_is_shown_token_by_token() -> None:
    words = " ".join(Outline(page("measured")).words.split())
    assert "One response" in words
    assert "Steps by their length" in words
    assert "The requests" not in words


def test_requests_are_bars_and_rows_that_belong_together() -> None:
    outline = Outline(page("served"))
    words = " ".join(outline.words.split())
    assert "request 1, 64 prompt tokens: queue 500 ms, TTFT 900 ms, TPOT 20.0 ms" in words
    assert "request 2, 4,096 prompt tokens: rejected" not in words  # it has no bar to point at
    assert "rejected" in words
    assert {"request-0", "request-1"} <= set(outline.values("id"))
    assert "What the KV cache holds over the round" in words


def test_the_largest_page_is_below_a_megabyte_and_says_what_it_leaves_out() -> None:
    assert len(page("largest").encode()) < 1_000_000
    words = " ".join(Outline(page("largest")).words.split())
    assert "The first 64 of 2000." in words
    assert "64 of 2000 requests" in words


def test_words_of_the_glossary_are_explained_where_they_stand() -> None:
    outline = Outline(page("usual"))
    explained = [attrs["title"] for tag, attrs in outline.tags if tag == "abbr"]
    assert any(text and "what a better kernel could give back" in text for text in explained)


def test_a_page_opens_with_its_question() -> None:
    words = Outline(render_html(a_report(), question="Why is <it> slow?").decode()).words
    first, after = "Why is <it> slow?", "smollm2-135m, 135 M parameters"
    assert words.index(first) < words.index(after)
