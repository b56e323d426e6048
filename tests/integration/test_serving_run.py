"""A trace of requests from the settings to the judged report and the terminal."""

import pytest

from llmprof.analysis.report import build_report
from llmprof.cli.app import execute
from llmprof.profiler import profile
from llmprof.schema.cost import Phase
from llmprof.schema.run import RunRecord
from llmprof.schema.settings import RunConfig

BLOCK_BYTES = 2 * 2 * 2 * 8 * 4 * 8
"""K and V, layers, KV heads, head_dim, fp32, tokens in a block of the tiny model."""
SERVED = {
    "weights": {"dtype": "fp32"},
    "execution": {"threads": 1},
    "kv_cache": {"layout": "paged", "block_tokens": 8, "memory_bytes": 9 * BLOCK_BYTES},
    "batching": {"policy": "continuous", "max_sequences": 3, "max_step_tokens": 24},
    "workload": {
        "kind": "trace",
        "requests": 6,
        "lengths": {
            "prompt": {"kind": "uniform", "low": 10, "high": 30},
            "output": {"kind": "uniform", "low": 10, "high": 30},
        },
    },
    "measure": {"warmup": 1, "rounds": 3},
}


pytestmark = pytest.mark.usefixtures("known_ceilings")


def served(model: str, **groups: dict[str, object]) -> RunRecord:
    return profile(RunConfig.model_validate({"model": model} | SERVED | groups))


def test_a_record_tells_of_every_request_and_step(tiny: str) -> None:
    record = served(tiny)

    assert record.status == "complete"
    assert record.phases == (Phase.PREFILL, Phase.DECODE, Phase.MIXED)
    assert record.output_sha256 is not None
    assert "outputs-differ" not in {caveat.code for caveat in record.caveats}
    for round_ in (*record.rounds, *record.grouped):
        assert [request.outcome for request in round_.requests] == 6 * ["finished"]
        assert all(step.kv and step.batch for step in round_.steps)
        tokens = [len(request.token_steps) for request in round_.requests]
        assert tokens == [request.output_tokens for request in round_.requests]
        assert max(request.token_steps[-1] for request in round_.requests) < len(round_.steps)
    assert RunRecord.model_validate_json(record.model_dump_json()) == record


def test_its_report_has_latencies_and_what_a_full_cache_costs(tiny: str) -> None:
    report = build_report(served(tiny))

    assert report.serving is not None
    assert report.serving.num_requests == 6
    assert report.serving.num_preemptions > 0
    assert report.serving.cache is not None
    assert report.serving.cache.reserved_peak_bytes <= report.serving.cache.pool_bytes
    assert report.serving.ttft_s.p99.point >= report.serving.ttft_s.p50.point
    assert report.latency.ttft_s is not None
    assert report.latency.ttft_s.point == report.serving.ttft_s.p50.point
    assert "preempted" in {caveat.code for caveat in report.caveats}
    assert {phase.phase for phase in report.phases} == set(Phase)


def test_a_static_batch_shows_its_padding(tiny: str) -> None:
    record = served(tiny, kv_cache={}, batching={"policy": "static", "max_sequences": 3})
    report = build_report(record)

    assert {phase.phase for phase in report.phases} == {Phase.PREFILL, Phase.DECODE}
    assert report.serving is not None
    assert report.serving.padding_fraction > 0.1
    assert "padding" in {caveat.code for caveat in report.caveats}


def test_the_command(tiny: str, capsys: pytest.CaptureFixture[str]) -> None:
    switches = [
        "kv_cache.layout=paged",
        "kv_cache.dtype=int8",
        "batching.policy=continuous",
        "workload.kind=trace",
        "workload.requests=3",
        "workload.lengths.prompt.mean=12",
        "workload.lengths.output.mean=4",
        "measure.warmup=1",
    ]
    arguments = ["run", tiny, "--threads", "1", "--rounds", "3"]
    assert execute([*arguments, *(word for one in switches for word in ("--set", one))]) == 0
    out, _ = capsys.readouterr()
    assert "SERVED 3 requests" in out
    assert "TTFT" in out
