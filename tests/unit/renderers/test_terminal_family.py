"""The summaries of all commands at three widths, with and without colour, as approved.

One family: they fit the terminal, say in words what they say in colour, and lose nothing without it.
"""

import io
import os
import re
from collections.abc import Callable
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.console import Console

from llmprof.analysis.compare import compare_reports
from llmprof.analysis.metrics import metric_named
from llmprof.analysis.prediction import BaseRun, predict
from llmprof.architectures.manifest import manifest_from_config
from llmprof.architectures.source import ModelSource
from llmprof.planning.inspection import inspect_model
from llmprof.renderers.comparison_text import render_comparison
from llmprof.renderers.gate_text import render_gate
from llmprof.renderers.inspection_text import render_inspection
from llmprof.renderers.prediction_text import render_prediction
from llmprof.renderers.run_text import render_run
from llmprof.renderers.sweep_text import print_sweep
from llmprof.schema.comparison import Comparison
from llmprof.schema.cost import Phase
from llmprof.schema.gate_result import Check, GateArm, GateResult, GateVerdict, Judgement
from llmprof.schema.inspection import Inspection
from llmprof.schema.measurement import Estimate
from llmprof.schema.prediction import Prediction
from llmprof.schema.run import Tool
from llmprof.schema.settings import Quantization
from llmprof.schema.sweep import CellStatus, Sweep
from tests.predicted_runs import a_base_run
from tests.published import LLAMA_3_1_8B
from tests.records import a_report as a_measured_report
from tests.records import a_run_record, model_phase
from tests.sweeps import a_sweep, some_metrics
from tests.unit.renderers import timelines

GOLDEN = Path(__file__).parents[2] / "golden"
REGENERATE = "LLMPROF_REGENERATE_GOLDEN"
ANSI = re.compile(r"\x1b\[[0-9;]*m")


def a_comparison() -> Comparison:
    plans = [model_phase(phase, efficiency=0.6) for phase in (Phase.PREFILL, Phase.DECODE)]
    candidate = a_run_record(plans, seed=2).model_copy(update={"id": "candidate"})
    return compare_reports([a_measured_report()], [a_measured_report(candidate)])


def two_axes() -> Sweep:
    kinds, batches = ("standard", "flash"), (1, 16)
    outcomes = [
        some_metrics(batch=batch, step_s=0.02 + 0.001 * batch)
        if (kind, batch) != ("standard", 16)
        else (CellStatus.REFUSED, "needs 9 GiB, 4 GiB are free")
        for kind in kinds
        for batch in batches
    ]
    return a_sweep({"attention.kind": kinds, "workload.batch": batches}, outcomes)


def a_gate() -> GateResult:
    arm = GateArm(
        label="main",
        model="smollm2",
        versions={"torch": "2.13.0"},
        fingerprint="0123",
        output_sha256=None,
        compute_dtype="bf16",
        weight_bytes=1,
    )
    judged = Judgement(
        metric=metric_named("decode.tpot_s.p50"),
        check=Check.PAIRED,
        verdict=GateVerdict.FAIL,
        tolerance=0.03,
        baseline=0.007412,
        candidate=0.007866,
        ratio=Estimate(point=1.061, low=1.052, high=1.070, confidence=0.95, num_samples=24),
        p_value=0.0002,
        minimum_detectable=0.009,
        reason="slower by more than the tolerance, in fresh processes too",
    )
    unknown = {
        "metric": metric_named("prefill.ttft_s.p50"),
        "verdict": GateVerdict.INCONCLUSIVE,
        "pairs_needed": 31,
    }
    return GateResult(
        command="run",
        created=datetime(2026, 11, 29, 14, 0, tzinfo=UTC),
        tool=Tool(version="0.1.0", argv=("llmprof",)),
        title="smollm2 b1 p512 o32",
        device="Example CPU",
        baseline=arm,
        candidate=arm.model_copy(update={"label": "branch"}),
        verdict=GateVerdict.FAIL,
        exit_code=1,
        judgements=(judged, judged.model_copy(update=unknown)),
        num_launches=4,
        elapsed_s=184.2,
    )


def a_prediction() -> Prediction:
    record = a_base_run()
    weights = record.settings.weights.model_copy(update={"quantization": Quantization.INT4})
    settings = record.settings.model_copy(update={"weights": weights})
    return predict(BaseRun.of(record), settings)


def an_inspection() -> Inspection:
    model = LLAMA_3_1_8B
    source = ModelSource(
        name=model.name,
        kind="config",
        config=model,
        manifest=manifest_from_config(model, "bf16"),
        files=(),
        tokenizer=None,
        has_weights=False,
    )
    return inspect_model(source, prompt_tokens=512, context_tokens=8192, batch=16)


SUMMARIES: dict[str, Callable[[Console], None]] = {
    "served": lambda console: render_run(timelines.served(), console, footer="run file  x.json"),
    "comparison": lambda console: render_comparison(a_comparison(), console),
    "sweep": lambda console: print_sweep(two_axes(), console),
    "gate": lambda console: render_gate(a_gate(), console),
    "prediction": lambda console: render_prediction(a_prediction(), console),
    "inspection": lambda console: render_inspection(an_inspection(), console),
}
WIDTHS = (60, 80, 140)


@cache
def shown(name: str, width: int, *, color: bool) -> str:
    console = Console(
        file=io.StringIO(),
        width=width,
        highlight=False,
        force_terminal=color,
        no_color=not color,
        color_system="standard" if color else None,
    )
    with console.capture() as captured:
        SUMMARIES[name](console)
    return captured.get()


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", SUMMARIES)
def test_summary_is_as_approved(name: str, width: int) -> None:
    text = shown(name, width, color=False)
    file = GOLDEN / f"{name}_text_{width}.txt"
    if os.environ.get(REGENERATE):
        file.write_text(text, encoding="utf-8")
    assert text == file.read_text(encoding="utf-8"), f"approve it with {REGENERATE}=1"


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", SUMMARIES)
def test_summary_fits_and_its_words_do_not_depend_on_colour(name: str, width: int) -> None:
    plain, colored = shown(name, width, color=False), shown(name, width, color=True)
    assert max(cell_len(line) for line in plain.splitlines()) <= width
    assert "\x1b" not in plain
    assert "\x1b[" in colored
    assert ANSI.sub("", colored) == plain


@pytest.mark.parametrize("name", SUMMARIES)
def test_no_color_wins_on_a_terminal(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    console = Console(file=io.StringIO(), width=80, highlight=False, force_terminal=True)
    with console.capture() as captured:
        SUMMARIES[name](console)
    assert not re.search(r"\x1b\[[0-9;]*3[0-7]m", captured.get())
