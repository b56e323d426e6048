"""Two processes on gloo that share out a model, against one that has it whole."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from llmprof.analysis.report import build_report
from llmprof.schema.cost import OpGroup, Phase
from llmprof.schema.ledger import Part, Side
from llmprof.schema.run import RunRecord
from llmprof.schema.verdict import Limit
from tests.rank_process import computed
from tests.tiny_decoders import DECODERS, write_decoder

ROOT = Path(__file__).parents[2]
RANKS = 2
HIDDEN = 32
BY_NAME = {decoder.name: decoder for decoder in DECODERS}
RANDOM = {
    "model_type": "llama",
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 64,
    "max_position_embeddings": 128,
    "rms_norm_eps": 1e-5,
}
WORK = {"prompt_tokens": 8, "output_tokens": 32}
FP32 = {"dtype": "fp32"}
PAGED = {"layout": "paged", "block_tokens": 8}


def torchrun(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(RANKS))
    environment = os.environ | {
        "PYTHONPATH": str(ROOT),
        "OMP_NUM_THREADS": "1",
        "TORCH_CPP_LOG_LEVEL": "ERROR",
    }
    return subprocess.run(
        [sys.executable, *launcher, "-m", *arguments],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def own_lines(stderr: str) -> list[str]:
    """What llmprof said, without progress and without what torchrun says about it."""
    return [line for line in stderr.splitlines() if line.startswith("llmprof: error")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("ranks")


def _random(**weights: Any) -> dict[str, Any]:
    return {"model": "random.json", "weights": {"source": "random", "dtype": "fp32"} | weights}


BATCH_3 = {"workload": WORK | {"batch": 3}}
COMPUTED: dict[str, dict[str, Any]] = {
    "grouped queries": {"model": "llama"},
    "paged, batch 3": {"model": "llama", "kv_cache": PAGED, **BATCH_3},
    "contiguous, batch 3": {"model": "llama", **BATCH_3},
    "standard attention": {"model": "llama", "attention": {"kind": "standard"}},
    "fewer KV heads than ranks, biases everywhere": {"model": "all_biases", "kv_cache": PAGED},
    "biases on queries, keys and values": {"model": "qwen2", **BATCH_3},
    "norms of heads": {"model": "qwen3"},
    "fused projections": {"model": "phi3"},
    "experts": {"model": "mixtral"},
    "a shared expert": {"model": "qwen2_moe"},
    "rotation of a part of each head": {"model": "glm"},
    "norms after a sum, capped logits, scaled embedding": {"model": "gemma2"},
    "int8": _random(quantization="int8"),
    "int4": _random(quantization="int4"),
}
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "groups that would be cut": (
        _random(quantization="int8", group_size=128),
        "64 columns",
    ),
    "a scale for each channel": (
        _random(quantization="int8", group_size="channel"),
        "group_size=channel is not available: the scale of a row that is cut",
    ),
    "replayed steps": (
        {"model": "llama", "execution": {"mode": "compiled"}},
        "execution.mode=compiled is not available",
    ),
    "uneven vocabulary": (
        {"model": "odd.json", "weights": {"source": "random"}},
        "63 rows of the vocabulary of odd cannot be shared out evenly over 2 devices",
    ),
}


def _settings(folder: Path, case: dict[str, Any]) -> dict[str, Any]:
    return {"weights": FP32, "workload": WORK} | case | {"model": str(folder / case["model"])}


@pytest.fixture(scope="module")
def results(folder: Path) -> dict[str, tuple[dict[str, Any], dict[str, Any]]]:
    """Of each case, by one process and by two."""
    for name in {case["model"] for case in COMPUTED.values()} & set(BY_NAME):
        write_decoder(folder / name, BY_NAME[name])
    (folder / "random.json").write_text(json.dumps(RANDOM))
    (folder / "odd.json").write_text(json.dumps(RANDOM | {"vocab_size": 63}))
    every = COMPUTED | {name: case for name, (case, _) in REFUSED.items()}
    cases = {name: _settings(folder, case) for name, case in every.items()}
    (folder / "cases.json").write_text(json.dumps(cases))
    done = torchrun("tests.rank_process", "cases", str(folder / "cases.json"), cwd=folder)
    assert done.returncode == 0, done.stderr
    by_two = json.loads(done.stdout.splitlines()[-1])
    return {
        name: (computed(cases[name]) if name in COMPUTED else {}, by_two[name]) for name in cases
    }


@pytest.mark.parametrize("name", COMPUTED)
def test_two_ranks_give_the_tokens_of_one_process(
    results: dict[str, tuple[dict[str, Any], dict[str, Any]]], name: str
) -> None:
    one, two = results[name]
    assert two["tokens"] == one["tokens"]
    assert {len(row) for row in two["tokens"]} == {32}
    for mine, theirs in zip(two["logits"], one["logits"], strict=True):
        assert mine == pytest.approx(theirs, abs=1e-5)


@pytest.mark.parametrize("name", COMPUTED)
def test_a_rank_holds_what_planning_says(
    results: dict[str, tuple[dict[str, Any], dict[str, Any]]], name: str
) -> None:
    """Formulas of a plan, which know nothing of the loader, against the tensors that it made."""
    one, two = results[name]
    assert two["weight_bytes"] == two["planned_bytes"] < one["weight_bytes"]
    kv_heads = 1 if COMPUTED[name]["model"] == "all_biases" else 2
    shared = min(RANKS, kv_heads)  # a single KV head is on both
    assert two["kv_bytes_per_token"] * shared == one["kv_bytes_per_token"]


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_shared_out_is_refused_with_the_reason(
    results: dict[str, tuple[dict[str, Any], dict[str, Any]]], name: str
) -> None:
    assert REFUSED[name][1] in results[name][1]["refused"]


RUN = (
    "--set",
    "workload.prompt_tokens=8",
    "--set",
    "workload.output_tokens=4",
    "--set",
    "weights.dtype=fp32",
    "--set",
    "measure.warmup=auto",
    "--rounds",
    "3",
)


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    write_decoder(folder / "tiny", BY_NAME["llama"])
    return folder


@pytest.fixture(scope="module")
def run(run_folder: Path) -> subprocess.CompletedProcess[str]:
    """`llmprof run` of the tiny llama by two ranks, its tracing pass included."""
    words = ("run", "tiny", *RUN, "--set", "parallel.tensor=2", "--ops")
    done = torchrun("tests.rank_process", "run", *words, cwd=run_folder)
    assert done.returncode == 0, done.stderr
    return done


@pytest.fixture(scope="module")
def record(run: subprocess.CompletedProcess[str], run_folder: Path) -> RunRecord:
    """The only run file that was written."""
    (path,) = (run_folder / ".llmprof" / "runs").glob("*.json")
    return RunRecord.model_validate_json(path.read_text())


def test_one_rank_speaks_for_both(run: subprocess.CompletedProcess[str]) -> None:
    assert run.stdout.count("DECODE") == 1
    assert run.stderr.count("llmprof: loading") == 1
    assert not own_lines(run.stderr)


def test_counted_bytes_of_collectives_are_those_of_the_formula(record: RunRecord) -> None:
    """Of 2 layers, hidden size 32 and a vocabulary of 48, in fp32: worked out by hand."""
    counted = {step.shape.phase: step for step in record.counted}
    for phase, tokens in ((Phase.PREFILL, 8), (Phase.DECODE, 1)):
        ops = {op.op: op for op in counted[phase].ops if op.exchanged_bytes is not None}
        sums, gathers = ops["llmprof.all_reduce_"], ops["llmprof.all_gather"]
        assert (sums.calls, sums.exchanged_bytes) == (5, 5 * tokens * HIDDEN * 4)
        assert (gathers.calls, gathers.exchanged_bytes) == (1, 24 * 4)
        assert {sums.group, gathers.group} == {OpGroup.COMMUNICATION}


def test_the_ledger_bills_collectives_at_their_ceilings(record: RunRecord) -> None:
    ceilings = {one.op: one for one in record.ceilings.collectives}
    assert {(one.backend, one.world_size, one.dtype) for one in ceilings.values()} == {
        ("gloo", 2, "fp32")
    }
    report = build_report(record)
    (ledger,) = (one for one in report.ledgers if one.phase is Phase.DECODE)
    (entry,) = (one for one in ledger.groups if one.group is OpGroup.COMMUNICATION)
    sums, gathers = ceilings["all_reduce"], ceilings["all_gather"]
    by_hand = (
        5 * (sums.alpha_s + HIDDEN * 4 / sums.bytes_per_s)
        + gathers.alpha_s
        + 24 * 4 / gathers.bytes_per_s
    )
    # ceilings are scaled to the median step by one factor, the same for every link
    factor = entry.exchange_s / by_hand
    weights = next(one for one in ledger.groups if one.group is OpGroup.LM_HEAD)
    read = report.roof.read_bytes_per_s.point if report.roof else 0.0
    assert factor == pytest.approx(weights.memory_s * read / weights.roof_bytes, rel=0.2)
    assert entry.side is Side.COMMUNICATION
    assert entry.fixed_cost_s == 0.0
    assert entry.roof_s == entry.exchange_s
    (part,) = (one for one in ledger.parts if one.part is Part.COMMUNICATION)
    assert part.time_s.point == pytest.approx(entry.exchange_s)
    assert sum(one.share for one in ledger.parts) == pytest.approx(1.0)
    shares = {one.limit: one.share.point for one in report.verdicts[-1].limits}
    assert shares[Limit.COMMUNICATION] * ledger.step_s.point == pytest.approx(entry.time_s.point)


def test_no_verdict_where_the_ranks_share_one_memory(record: RunRecord) -> None:
    report = build_report(record)
    for verdict in report.verdicts:
        assert verdict.limit is Limit.INCONCLUSIVE
        assert any("the 2 ranks work on one machine" in reason for reason in verdict.reasons)
    codes = {caveat.code for caveat in report.caveats}
    assert {"one-of-ranks", "ranks-share-memory"} <= codes
    assert report.levers is None


@pytest.mark.parametrize(
    ("fate", "reason"),
    [
        ("fails", "rank 1 of 2: out of memory while running a step"),
        ("dies", "one of the 2 processes ended without a word"),
    ],
)
def test_a_rank_that_ends_ends_all_with_one_line(run_folder: Path, fate: str, reason: str) -> None:
    words = ("run", "tiny", *RUN, "--set", "parallel.tensor=2", "--set", "measure.warmup=4")
    done = torchrun("tests.rank_process", fate, *words, cwd=run_folder)
    (line,) = own_lines(done.stderr)
    assert reason in line
    assert done.stdout == ""
    assert done.returncode != 0


@pytest.mark.parametrize("rank", range(RANKS))
def test_torchrun_must_start_as_many_as_the_settings_ask_for(run_folder: Path, rank: int) -> None:
    """Each of its processes by itself, with what torchrun tells it: none waits for another."""
    told = {"RANK": rank, "WORLD_SIZE": RANKS, "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": RANKS}
    environment = os.environ | {key: str(value) for key, value in told.items()}
    done = subprocess.run(
        [sys.executable, "-m", "llmprof", "run", "tiny", *RUN],
        cwd=run_folder,
        env=environment | {"TORCHELASTIC_RUN_ID": "one", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    lines = own_lines(done.stderr)
    assert len(lines) == (1 if rank == 0 else 0)
    assert all("torchrun started 2 processes, but parallel.tensor is 1" in line for line in lines)
