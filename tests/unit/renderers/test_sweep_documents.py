"""Every view of a sweep, from one document with chosen numbers."""

import csv
import io
import re
from itertools import pairwise
from pathlib import Path

import pytest
from rich.console import Console

from llmprof import units
from llmprof.errors import InputError
from llmprof.renderers.figure_style import styled
from llmprof.renderers.sweep_figure import _PANEL_IN, _draw_trade_off, _finish
from llmprof.renderers.sweep_formats import RENDERERS, check_sweep_suffix, render_sweep
from llmprof.renderers.sweep_heatmap import has_heatmap
from llmprof.renderers.sweep_lines import lines, x_axis
from llmprof.renderers.sweep_text import print_sweep
from llmprof.renderers.sweep_words import headline
from llmprof.schema.sweep import CellMetrics, CellStatus, Sweep
from llmprof.store.documents import read_document
from tests.sweeps import a_sweep, some_metrics

BATCHES = (1, 4, 16)
KINDS = ("flash", "standard")


def two_axes() -> Sweep:
    outcomes = [
        some_metrics(batch=batch, step_s=0.02 + 0.001 * batch)
        if (kind, batch) != ("standard", 16)
        else (CellStatus.REFUSED, "needs 9 <b>GiB</b> | here")
        for kind in KINDS
        for batch in BATCHES
    ]
    return a_sweep({"attention.kind": KINDS, "workload.batch": BATCHES}, outcomes, tpot_max_s=0.03)


def shown(sweep: Sweep, width: int) -> str:
    console = Console(width=width, file=io.StringIO(), color_system=None)
    print_sweep(sweep, console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.mark.parametrize("width", [40, 80, 100, 140])
def test_the_table_fits_and_a_wider_one_says_more(width: int) -> None:
    text = shown(two_axes(), width)
    assert max(len(line.rstrip()) for line in text.splitlines()) <= width
    assert "output tok/s" in text
    assert ("KV held" in text) == (width >= 100)
    assert text.count("refused") == 2  # its row, and the line with the reason


def test_choices_headline_and_reasons_are_told() -> None:
    text = " ".join(shown(two_axes(), 140).split())
    # 16 sequences in 36 ms are 444 tok/s; 1 in 21 ms is 47.6.
    assert "Most output: 444 output tok/s at attention flash, batch 16, 9.33 x the least" in text
    assert "knee at attention standard: batch 4 (the largest measured" in text
    assert "TPOT ≤ 30.0 ms: batch 4 at most" in text
    assert "needs 9 <b>GiB</b> | here" in text


def test_numbers_run_along_x_and_words_make_the_lines() -> None:
    sweep = two_axes()
    assert x_axis(sweep.axes).key == "workload.batch"
    assert [line.label for line in lines(sweep)] == ["attention flash", "attention standard"]
    words = a_sweep({"weights.quantization": ("none", "int8")}, [some_metrics()] * 2)
    assert [len(line.cells) for line in lines(words)] == [2]


def test_only_two_axes_have_a_map() -> None:
    assert has_heatmap(two_axes())
    assert not has_heatmap(a_sweep({"workload.batch": (1, 2)}, [some_metrics()] * 2))


def test_csv_has_base_units_and_empty_cells_where_nothing_is_known() -> None:
    rows = list(csv.DictReader(io.StringIO(render_sweep(two_axes(), ".csv").decode())))
    assert len(rows) == 6
    first, last = rows[0], rows[-1]
    assert (first["attention.kind"], first["workload.batch"]) == ("flash", "1")
    assert float(first["decode.step_s"]) == 0.021
    assert float(first["decode.weights_bytes"]) == 2.69e8
    assert (last["status"], last["decode.step_s"], last["tpot_s"]) == ("refused", "", "")


def test_markdown_escapes_what_came_from_outside() -> None:
    text = render_sweep(two_axes(), ".md").decode()
    assert "needs 9 &lt;b>GiB&lt;/b> \\| here" in text
    table = [line for line in text.splitlines() if line.startswith("| attention")]
    assert table


def test_the_page_is_offline_and_whole() -> None:
    page = render_sweep(two_axes(), ".html").decode()
    assert "default-src 'none'" in page
    assert not re.search(r'(src|href)="(https?:)?//', page)
    assert "<b>GiB</b>" not in page
    assert 'id="sweep-title"' in page
    assert 'id="map-title"' in page
    assert "run-0" in page
    assert "Kleinrock" in page


@pytest.mark.parametrize("suffix", RENDERERS)
def test_same_sweep_same_bytes_even_with_nothing_measured(suffix: str) -> None:
    sweeps = (
        two_axes(),
        a_sweep({"workload.batch": (1, 2)}, [(CellStatus.FAILED, "out of memory")] * 2),
    )
    for sweep in sweeps:
        data = render_sweep(sweep, suffix)
        assert data
        assert render_sweep(sweep, suffix) == data


def test_an_unknown_suffix_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InputError) as caught:
        check_sweep_suffix(".xlsx")
    assert ".html .md" in caught.value.line()


def test_the_headline_says_what_a_switch_gives_where_all_else_is_equal() -> None:
    """0.020 and 0.030 s per step of batch 1 and 4, and twice as long with standard attention."""
    outcomes = [
        some_metrics(batch=batch, step_s=factor * step_s)
        for factor in (2, 1)
        for batch, step_s in ((1, 0.02), (4, 0.03))
    ]
    sweep = a_sweep({"attention.kind": ("standard", "flash"), "workload.batch": (1, 4)}, outcomes)
    assert "Attention flash gives 2.00 x the output tok/s of standard" in headline(sweep)


def test_cells_whose_intervals_overlap_are_not_ranked() -> None:
    alike = [some_metrics(step_s=0.0200), some_metrics(step_s=0.0201)]
    told = headline(a_sweep({"kv_cache.layout": ("contiguous", "paged")}, alike))
    assert told.startswith("No cell is shown to give more output than another: 49.8 to 50.0 tok/s")


def test_times_below_the_trade_off_do_not_run_into_each_other() -> None:
    """A sweep whose steps take 22 to 58 ms, in one of its panels."""
    file = Path(__file__).parents[3] / "reports" / "flash-attention.sweep.json"
    sweep, _ = read_document(file, Sweep)
    with styled():
        from matplotlib.figure import Figure

        figure = Figure(figsize=_PANEL_IN, layout="constrained")
        panel = figure.subplots()
        _draw_trade_off(panel, sweep, lines(sweep))
        figure.draw_without_rendering()
        labels = [label.get_window_extent() for label in panel.get_xticklabels()]
    assert len(labels) > 2
    assert all(one.x1 + 2 < other.x0 for one, other in pairwise(labels))


def disturbed(batch: int, *reasons: str) -> CellMetrics:
    changed = {"num_rejected_rounds": 6, "disturbed_by": reasons}
    return some_metrics(batch=batch).model_copy(update=changed)


def test_no_cell_is_named_best_by_disturbed_rounds_alone() -> None:
    why = "its threads waited for a CPU"
    every = a_sweep({"workload.batch": (1, 4)}, [disturbed(1, why), disturbed(4)])
    text = " ".join(shown(every, 200).split())
    assert (
        f"No cell can be named best: every round of all 2 measured cells was disturbed ({why}). "
        "Stop other programs and measure again (--fresh)." in text
    )
    assert "Most output" not in text
    assert "knee" not in text
    assert "output tok/s at" not in headline(a_sweep({"workload.batch": (1,)}, [disturbed(1)]))


def test_a_disturbed_cell_is_left_out_of_what_is_named_and_says_so() -> None:
    outcomes = [some_metrics(batch=1), some_metrics(batch=4), disturbed(16, "the clock was lower")]
    sweep = a_sweep({"workload.batch": BATCHES}, outcomes)
    assert headline(sweep) == (
        "Most output: 200 output tok/s at batch 4, 4.00 x the least (50.0 at batch 1). "
        "Left out, since every round was disturbed: batch 16 (the clock was lower)."
    )
    assert [choice.knee for choice in sweep.choices] == [4]


@pytest.mark.parametrize("most", [0.0203, 0.00565, 0.39, 0.176, 0.0111])
def test_ticks_of_shares_are_written_as_they_are(most: float) -> None:
    """1.25 % would read 1.2 %, and equal steps would look unequal."""
    with styled():
        from matplotlib.figure import Figure

        figure = Figure(figsize=_PANEL_IN, layout="constrained")
        panel = figure.subplots()
        panel.plot([1, 2], [most / 2, most])
        _finish(panel, units.percent)
        figure.draw_without_rendering()
        ticks = [
            (one.get_text(), panel.get_yticks()[i]) for i, one in enumerate(panel.get_yticklabels())
        ]
    assert len(ticks) > 2
    for text, value in ticks:
        assert float(text.removesuffix(" %")) == pytest.approx(100 * value)
