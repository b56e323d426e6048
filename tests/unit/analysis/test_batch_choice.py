from llmprof.schema.sweep import BatchChoice, CellStatus, Sweep
from tests.sweeps import a_sweep, some_metrics

BATCHES = (1, 2, 4, 8, 16)


def swept(step_s: tuple[float, ...], ttft_s: float = 0.1, **limits: float) -> Sweep:
    outcomes = [
        some_metrics(batch=batch, step_s=step, ttft_s=ttft_s * batch)
        for batch, step in zip(BATCHES, step_s, strict=True)
    ]
    return a_sweep({"workload.batch": BATCHES}, outcomes, **limits)


def only(sweep: Sweep) -> BatchChoice:
    (choice,) = sweep.choices
    return choice


def test_the_knee_is_where_a_step_begins_to_grow_with_the_batch() -> None:
    # Weights cost 20 ms, each sequence 3 ms where arithmetic takes over: power B / step^2 has its
    # largest value where both are equal, at 20 / 3 sequences; 4 and 8 give 0.00391 and 0.00413.
    steps = tuple(0.020 + 0.003 * batch for batch in BATCHES)
    choice = only(swept(steps))
    assert choice.knee == 8
    assert not choice.knee_at_edge


def test_a_knee_at_the_largest_batch_is_marked() -> None:
    choice = only(swept((0.02,) * 5))
    assert (choice.knee, choice.knee_at_edge) == (16, True)


def test_without_a_limit_no_batch_is_named() -> None:
    assert only(swept((0.02,) * 5)).largest_within is None


def test_the_whole_interval_keeps_the_limit() -> None:
    steps = (0.020, 0.021, 0.023, 0.027, 0.035)
    # Intervals reach 5 % above: 0.027 has 0.02835.
    assert only(swept(steps, tpot_max_s=0.0284)).largest_within == 8
    assert only(swept(steps, tpot_max_s=0.0283)).largest_within == 4
    assert only(swept(steps, tpot_max_s=0.020)).largest_within is None


def test_both_limits_hold_together() -> None:
    steps = (0.020, 0.021, 0.023, 0.027, 0.035)
    assert only(swept(steps, tpot_max_s=1.0, ttft_max_s=0.22)).largest_within == 2


def test_one_choice_per_combination_of_the_other_axes_over_measured_cells() -> None:
    fast, slow = some_metrics(batch=4, step_s=0.02), some_metrics(batch=4, step_s=0.05)
    one = some_metrics(step_s=0.02)
    sweep = a_sweep(
        {"attention.kind": ("flash", "standard"), "workload.batch": (1, 4, 8)},
        [one, fast, (CellStatus.FAILED, "out of memory"), one, slow, (CellStatus.REFUSED, "big")],
    )
    assert [(c.others, c.knee) for c in sweep.choices] == [
        ({"attention.kind": "flash"}, 4),
        ({"attention.kind": "standard"}, 1),
    ]
    assert sweep.choices[0].knee_at_edge


def test_no_axis_of_batches_no_choice() -> None:
    sweep = a_sweep({"workload.prompt_tokens": (8, 16)}, [some_metrics(), some_metrics()])
    assert sweep.choices == ()
