from llmprof.renderers.serving_text import serving_lines
from llmprof.schema.measurement import Estimate
from llmprof.schema.serving import CacheWaste, ServingMeasurement, Spread
from llmprof.schema.settings import BatchingPolicy


def about(value: float) -> Estimate:
    return Estimate(point=value, low=value, high=value, confidence=0.9, num_samples=6)


def spread(middle: float, late: float) -> Spread:
    return Spread(p50=about(middle), p99=about(late))


SERVING = ServingMeasurement(
    policy=BatchingPolicy.CONTINUOUS,
    max_sequences=8,
    num_requests=24,
    num_rejected=1,
    num_preemptions=5,
    round_s=about(12.5),
    requests_per_s=about(1.84),
    output_tokens_per_s=about(93.7),
    queue_s=spread(0.25, 1.5),
    ttft_s=spread(0.8, 2.1),
    tpot_s=spread(0.045, 0.06),
    itl_s=None,
    end_to_end_s=spread(3.0, 9.0),
    mean_running=7.25,
    padding_fraction=0.0,
    cache=CacheWaste(
        pool_bytes=32 * 2**20,
        reserved_peak_bytes=28 * 2**20,
        used_peak_bytes=27 * 2**20,
        wasted_fraction=0.034,
    ),
)


def test_three_lines() -> None:
    assert [line.plain for line in serving_lines(SERVING, 200)] == [
        "",
        "SERVED 23 requests in 12.5 s · continuous batching, 7.25 of at most 8 at once · "
        "1.84 requests/s · 93.7 output tok/s",
        "queue 250 ms / 1.50 s · TTFT 800 ms / 2.10 s · TPOT 45.0 ms / 60.0 ms · "
        "end to end 3.00 s / 9.00 s (median / p99, of fewer than 100 values the largest)",
        "padding 0 % · KV 28.0 MiB of 32.0 MiB held at most, 3.4 % of it empty · 5 preemptions · "
        "1 rejected",
    ]


def test_a_hundred_requests_have_a_99th_percentile() -> None:
    many = SERVING.model_copy(update={"num_requests": 101})
    assert "(median / p99)" in serving_lines(many, 200)[2].plain


def test_lines_are_as_wide_as_the_terminal() -> None:
    assert all(line.cell_len <= 60 for line in serving_lines(SERVING, 60))


def test_fixed_work_has_none() -> None:
    assert serving_lines(None, 80) == []
