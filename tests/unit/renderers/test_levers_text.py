from rich.cells import cell_len

from llmprof import units
from llmprof.analysis.report import build_report
from llmprof.renderers.html_page import render_html
from llmprof.renderers.levers_text import best_levers, lever_lines, lever_tables
from llmprof.renderers.run_text import SCREEN_LINES, run_text
from tests.predicted_runs import a_base_run

REPORT = build_report(a_base_run())


def test_the_three_best_levers_take_a_line_each_of_one_screen() -> None:
    lines = [line.plain for line in lever_lines(REPORT.levers)]
    assert len(lines) == 3
    assert lines[0].startswith("helps: batch 8")
    assert max(map(cell_len, lines)) <= 80
    screen = run_text(REPORT, width=80, footer="run file\nnext").splitlines()
    assert len(screen) <= SCREEN_LINES
    assert any("batch 8" in line and line.startswith("helps") for line in screen)


def test_where_there_is_no_room_the_best_two_share_a_line_with_their_intervals() -> None:
    (line,) = lever_lines(REPORT.levers, room=1)
    assert cell_len(line.plain) <= 80
    assert REPORT.levers is not None
    first, second = best_levers(REPORT.levers)[:2]
    for one in (first, second):
        low, high = (units.significant(end, 2) for end in (one.gain.low, one.gain.high))
        assert f"{one.label} {units.ratio(one.gain.point, 2)} [{low}, {high}]" in line.plain


def test_each_setting_is_named_once_on_the_screen() -> None:
    lines = [line.plain for line in lever_lines(REPORT.levers)]
    assert sum("batch" in line for line in lines) == 1


def test_the_page_has_levers_reasons_and_crossings() -> None:
    captions = [table.caption for table in lever_tables(REPORT.levers)]
    assert len(captions) == 3
    page = render_html(REPORT).decode()
    assert "What would help" in page
    for caption in captions:
        assert caption in page


def test_without_levers_there_is_nothing() -> None:
    assert lever_lines(None) == []
    assert lever_tables(None) == ()
