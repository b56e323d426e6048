from llmprof.renderers.fitted_table import TextTable, fitted

TABLE = TextTable(
    columns=("format", "level", "best", "median", "kernel"),
    rows=(
        ("bf16", "DRAM", "13.6 GB/s", "9.79 GB/s", "llmprof::matvec"),
        ("fp32", "DRAM", "6.18 GB/s", "1.98 GB/s", "llmprof::matvec"),
        ("fp32", "DRAM", "5.33 GB/s", "1.01 GB/s", "torch.mm"),
    ),
    first_number=2,
)


def test_a_table_with_room_stays_as_it_is() -> None:
    assert fitted(TABLE, 60) == TABLE


def test_first_goes_what_all_rows_say() -> None:
    shown = fitted(TABLE, 48)
    assert shown.columns == ("format", "best", "median", "kernel")
    assert (shown.above, shown.first_number, shown.below) == (("level DRAM",), 1, "")


def test_then_the_texts_go_below_with_the_rows_that_they_belong_to() -> None:
    shown = fitted(TABLE, 30)
    assert shown.columns == ("format", "best", "median")
    assert shown.below == (
        "kernel: llmprof::matvec (bf16, fp32 best 6.18 GB/s); torch.mm (fp32 best 5.33 GB/s)"
    )


def test_last_go_the_figures_that_others_stand_for() -> None:
    shown = fitted(TABLE, 20)
    assert shown.columns == ("format", "best")
    assert [row[1] for row in shown.rows] == ["13.6 GB/s", "6.18 GB/s", "5.33 GB/s"]
    assert fitted(TextTable(("a",), (), 1), 0).rows == ()
