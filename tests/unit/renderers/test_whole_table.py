import pytest
from rich.text import Text

from llmprof.renderers.whole_table import fits, row_lines

COLUMNS = ("metric", "change", "")
ROWS = (("decode", "+6.1 % [+5.2, +7.0]", "FAIL"), ("prefill", "", "PASS"))


@pytest.mark.parametrize(
    ("width", "broken", "fit"),
    [(34, (), True), (33, (), False), (21, (1,), True), (20, (1,), False)],
)
def test_every_cell_or_every_word_must_stand_whole(
    width: int, broken: tuple[int, ...], fit: bool
) -> None:
    """Columns of 7, 19 and 4 cells with two between them; the longest word of the second has 6."""
    assert fits(COLUMNS, ROWS, width, broken=broken) is fit


def test_a_heading_counts_as_a_cell() -> None:
    assert not fits(("a long heading", "b"), (("x", "y"),), 16)
    assert fits(("a long heading", "b"), (("x", "y"),), 17)


def test_a_row_becomes_a_line_that_loses_nothing() -> None:
    lines = row_lines(COLUMNS, ROWS, 80)
    assert [line.plain for line in lines] == [
        "decode: change +6.1 % [+5.2, +7.0], FAIL",
        "prefill: PASS",
    ]


def test_a_narrow_terminal_breaks_it_between_words() -> None:
    lines = [line.plain for line in row_lines(COLUMNS, ROWS[:1], 24)]
    assert all(len(line) <= 24 for line in lines)
    assert " ".join(" ".join(lines).split()) == "decode: change +6.1 % [+5.2, +7.0], FAIL"


def test_styles_stay() -> None:
    (line,) = row_lines(COLUMNS, [("decode", "+1 %", Text("FAIL", "bold red"))], 80)
    assert [str(span.style) for span in line.spans] == ["bold red"]
