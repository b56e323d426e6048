"""`llmprof predict` and `llmprof run --confirm`, from the command line to the documents."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from llmprof import units
from llmprof.analysis.prediction_target import make_target
from llmprof.architectures.source import resolve_model
from llmprof.ceilings.weight_stream import Weight
from llmprof.cli.app import execute
from llmprof.costs.weight_layout import laid_out
from llmprof.engine.linear import Linear
from llmprof.experiments.kernel_benchmarks import benchmark_kernels
from llmprof.experiments.product_benchmark import benchmark_products
from llmprof.schema.cost import PROJECTIONS, OpGroup, Phase
from llmprof.schema.settings import RunConfig
from llmprof.store.documents import write_document
from llmprof.store.runs import save_run
from llmprof.store.settings_file import changed_settings
from tests.predicted_runs import a_base_run, device_ceilings

pytestmark = pytest.mark.usefixtures("known_ceilings")


def _json(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    code = execute(list(words))
    printed = capsys.readouterr()
    assert code == 0, printed.err
    document: dict[str, Any] = json.loads(printed.out)
    return document


def test_a_saved_run_under_other_settings(capsys: pytest.CaptureFixture[str]) -> None:
    save_run(a_base_run())
    found = _json(capsys, "predict", "@last", "--set", "weights.quantization=int4", "--json")
    assert found["schema"] == "llmprof.prediction/1"
    assert found["tier"] == "B"
    assert [one["key"] for one in found["changes"]] == ["weights.quantization"]
    assert [one["phase"] for one in found["phases"]] == ["prefill", "decode"]


def test_the_screen_names_tier_interval_and_both_naive_forecasts(
    capsys: pytest.CaptureFixture[str],
) -> None:
    save_run(a_base_run())
    assert execute(["predict", "@last", "--set", "workload.batch=8"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    for words in ("workload.batch 1 → 8", "tier B", "bytes alone", "bare roofline", "at worst"):
        assert words in text


def test_a_batch_that_does_not_fit_is_told_before_any_number(
    capsys: pytest.CaptureFixture[str],
) -> None:
    save_run(a_base_run())
    words = ("predict", "@last", "--set", "workload.batch=1000000")
    assert execute(list(words)) == 0
    first, *_ = capsys.readouterr().out.splitlines()
    capacity = _json(capsys, *words, "--json")["capacity"]
    largest = capacity["largest_batch"]
    told = "DOES NOT FIT: a batch of 1.00 M. What follows is the largest that fits: "
    assert first.rstrip() == told + units.count(largest)
    assert (capacity["fits"], capacity["asked_batch"]) == (False, 1_000_000)
    assert 0 < largest < 1_000_000


def test_a_model_that_was_never_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_document(tmp_path / "other.json", device_ceilings(3e12, 900e12))
    words = ("predict", "llama-3.2-1b", "--device-ceilings", "other.json", "--json")
    found = _json(capsys, *words)
    assert (found["tier"], found["device"]) == ("A", "Another CPU")
    decode = found["phases"][1]
    assert decode["step_s"]["low"] > 2.4e9 / 3e12  # weights of 2.47 GB at 3 TB/s


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("llama-3.1-8b",), "no saved run"),
        (("llama-3.1-8",), "no saved run, and 'llama-3.1-8' is no file, folder"),
        (("llama-3.1-8",), "Did you mean 'llama-3.1-8b'?"),
        (("llama-3.1-8b", "--on", "gpu"), "--on is 'gpu'"),
        (("@last",), "no run '@last'"),
        (("@last", "--on", "cpu", "--device-ceilings", "x.json"), "name two devices"),
        (("none.json",), "none.json"),
    ],
)
def test_wrong_calls_end_with_2_and_one_line(
    words: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert execute(["predict", *words]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert message in printed.err
    assert printed.err.count("\n") == 1


def test_predicting_from_a_run_imports_no_torch(tmp_path: Path) -> None:
    save_run(a_base_run())
    code = (
        "import sys\n"
        "from llmprof.cli.app import execute\n"
        "assert execute(['predict', '@last', '--set', 'workload.batch=2']) == 0\n"
        "assert 'torch' not in sys.modules\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_a_switch_is_predicted_first_and_then_measured(
    tiny: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("run", tiny, "--dtype", "fp32", "--threads", "1", "--rounds", "3", "-q", "--json")
    sizes = ("--prompt-tokens", "8", "--output-tokens", "4", "--set", "measure.warmup=1")
    found = _json(capsys, *words, *sizes, "--confirm", "attention.kind=standard")
    assert found["schema"] == "llmprof.comparison/1"
    made = found["live"]["confirmation"]
    assert made["schema"] == "llmprof.confirmation/1"
    assert made["predicted_at"] < made["measured_at"]
    assert made["pairs"] == found["live"]["num_pairs"] == 3
    assert made["prediction"]["tier"] == "C"
    assert {one["group"] for one in made["prediction"]["benchmarks"]["kernels"]} >= {"attention"}
    assert [one["phase"] for one in made["phases"]] == ["prefill", "decode"]
    assert made["outputs"] == found["live"]["outputs"]
    assert (made["outputs"]["same"], made["outputs"]["tokens"]) == (True, 4)
    assert len(list(Path(".llmprof/predictions").glob("*.json"))) == 1
    assert len(list(Path(".llmprof/runs").glob("*.json"))) == 3


def test_confirming_no_change_is_refused_before_anything_is_measured(
    tiny: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert execute(["run", tiny, "--confirm", "attention.kind=flash"]) == 2
    assert "changes nothing" in capsys.readouterr().err
    assert not Path(".llmprof/runs").exists()


def test_only_what_changes_is_measured_by_itself(tiny: str) -> None:
    base = RunConfig.model_validate(
        {
            "model": tiny,
            "weights": {"dtype": "fp32"},
            "execution": {"threads": 1},
            "workload": {"prompt_tokens": 8, "output_tokens": 4},
        }
    )
    source = resolve_model(tiny)
    targets = [
        make_target(
            settings,
            source.config,
            laid_out(source.config, settings.weights, "fp32"),
            "fp32",
            decode_kernel=True,
        )
        for settings in (base, changed_settings(base, ["workload.batch=4"]))
    ]
    unchanged = benchmark_kernels(targets[0], targets[0], [Phase.DECODE], device="cpu")
    assert (unchanged.kernels, unchanged.overheads) == ((), ())
    changed = benchmark_kernels(targets[0], targets[1], [Phase.DECODE], device="cpu")
    groups = {one.group for one in changed.kernels}
    assert {OpGroup.ATTENTION, OpGroup.LM_HEAD, OpGroup.DOWN_PROJECTION} <= groups
    assert all(one.base_s > 0 and one.target_s > 0 for one in changed.kernels)
    compiled = changed_settings(base, ["execution.mode=compiled"])
    replayed = make_target(compiled, source.config, targets[0].weights, "fp32", decode_kernel=True)
    overheads = benchmark_kernels(targets[0], replayed, [Phase.DECODE], device="cpu").overheads
    assert {None, OpGroup.NORM, OpGroup.ATTENTION} <= {one.group for one in overheads}


def test_products_of_fused_steps_are_timed_by_the_kernels_that_run_there(
    tiny: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stand-in takes the place of those for GPUs; against a step that is not fused nothing is timed."""
    asked: list[tuple[OpGroup, int]] = []

    def product(group: OpGroup, model: object, rows: int, weight: Weight) -> Linear:
        asked.append((group, rows))
        return Linear(weight)

    monkeypatch.setattr("llmprof.experiments.product_benchmark.fused_product", product)
    base = RunConfig.model_validate(
        {
            "model": tiny,
            "weights": {"dtype": "bf16"},
            "execution": {"threads": 1},
            "workload": {"prompt_tokens": 8, "output_tokens": 4},
        }
    )
    model = resolve_model(tiny).config
    apart, fused = (
        [
            make_target(
                settings,
                model,
                laid_out(model, settings.weights, "bf16"),
                "bf16",
                decode_kernel=True,
                fused_rows=fused_rows,
            )
            for settings in (base, changed_settings(base, ["workload.batch=4"]))
        ]
        for fused_rows in (0, 16)
    )
    times = [*benchmark_products(fused[0], fused[1], Phase.DECODE, "cpu", (1, 1))]
    assert {one.group for one in times} == set(PROJECTIONS)
    assert {group for group, _ in asked} == set(PROJECTIONS)
    assert {rows for _, rows in asked} == {1, 4}
    assert not [*benchmark_products(fused[0], apart[1], Phase.DECODE, "cpu", (1, 1))]
