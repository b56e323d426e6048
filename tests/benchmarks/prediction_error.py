"""Predictions against measurements over a matrix of switches: the error table.

    python -m tests.benchmarks.prediction_error [--quick] [--budget-minutes 40] [--model NAME ...]

For every change: a base run, microbenchmarks of the kernels that change, the prediction (written to a
file), and only then base and target in turn. Rows are kept in DIR/prediction-error.jsonl as they end:
a rerun goes on where the last one stopped (--fresh starts again). At the end, or when the budget is
spent, DIR/prediction-error.json and .md hold the table. Wants a quiet machine.
"""

import argparse
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from llmprof.analysis.confirmation import paired_speedup
from llmprof.analysis.paper_device import PaperDevice
from llmprof.analysis.paper_forecast import paper_target, predict_on_paper
from llmprof.analysis.prediction import BaseRun, predict
from llmprof.analysis.prediction_error import (
    GOAL_COVER,
    GOAL_HALF_WIDTH,
    GOAL_MEDIAN,
    GOAL_WORST,
    PredictedCase,
    cover,
    median_half_width,
    score,
)
from llmprof.analysis.validity import select_rounds
from llmprof.ceilings.measure import cached_ceilings
from llmprof.errors import LlmprofError
from llmprof.experiments.confirm import predict_with_benchmarks, write_prediction
from llmprof.experiments.paired import measure_pairs
from llmprof.profiler import profile
from llmprof.schema.cost import Phase
from llmprof.schema.prediction import Prediction
from llmprof.schema.run import RunRecord
from llmprof.schema.settings import RunConfig
from llmprof.store.settings_file import changed_settings, load_settings

MODELS = ("smollm2-135m-instruct", "qwen3-0.6b")
"""The second has random weights: they take as long as any others."""
INSTALLED = "smollm2-135m-instruct"
USUAL = "workload.prompt_tokens=256 workload.output_tokens=24"
FILLED = "workload.context=synthetic workload.prompt_tokens=512 workload.output_tokens=16"


@dataclass(frozen=True, slots=True)
class Cell:
    base: str
    change: str
    quick: bool = False


CELLS = (
    Cell(USUAL, "weights.quantization=int8", quick=True),
    Cell(USUAL, "weights.quantization=int4", quick=True),
    Cell(USUAL, "workload.batch=2"),
    Cell(USUAL, "workload.batch=4"),
    Cell(USUAL, "workload.batch=8", quick=True),
    Cell(USUAL, "workload.batch=16"),
    Cell(USUAL, "execution.mode=compiled", quick=True),
    Cell(USUAL, "kv_cache.layout=paged"),
    Cell(USUAL, "attention.kind=standard", quick=True),
    Cell(USUAL, "kv_cache.dtype=int8"),
    Cell(USUAL, "kv_cache.layout=none"),
    Cell(USUAL, "workload.prompt_tokens=1024"),
    Cell(USUAL, "weights.quantization=int4 execution.mode=compiled"),
    Cell(FILLED, "workload.prompt_tokens=128"),
    Cell(FILLED, "workload.prompt_tokens=2048", quick=True),
    Cell(FILLED, "workload.prompt_tokens=8000"),
    Cell(FILLED + " workload.batch=8", "kv_cache.dtype=int8"),
    Cell(FILLED + " workload.batch=8", "kv_cache.layout=paged"),
    Cell(FILLED + " workload.batch=8", "attention.kind=standard"),
    Cell(FILLED + " workload.batch=8", "weights.quantization=int4"),
)


def main() -> None:
    arguments = _arguments()
    arguments.dir.mkdir(parents=True, exist_ok=True)
    kept = arguments.dir / "prediction-error.jsonl"
    if arguments.fresh:
        kept.unlink(missing_ok=True)
    deadline = time.monotonic() + 60 * arguments.budget_minutes
    done = {(one["model"], one["base"], one["change"]) for one in _lines(kept)}
    bases: dict[tuple[str, str], RunRecord] = {}
    for model in arguments.model:
        for cell in (one for one in CELLS if one.quick or not arguments.quick):
            key = (model, cell.base, cell.change)
            if key in done or time.monotonic() > deadline:
                continue
            print(f"{model}: {cell.base} → {cell.change}", flush=True)
            rows = _run(model, cell, bases, rounds=arguments.rounds)
            line = {"model": model, "base": cell.base, "change": cell.change, **rows}
            with kept.open("a") as file:
                file.write(json.dumps(line) + "\n")
    lines = list(_lines(kept))
    cases = [PredictedCase(**row) for line in lines for row in line.get("cases", ())]
    failures = [line for line in lines if "failed" in line]
    text = _markdown(cases, failures)
    (arguments.dir / "prediction-error.md").write_text(text)
    document = {"cases": [asdict(one) for one in cases], "failed": failures}
    (arguments.dir / "prediction-error.json").write_text(json.dumps(document, indent=1))
    print(text)


def _run(
    model: str, cell: Cell, bases: dict[tuple[str, str], RunRecord], *, rounds: int
) -> dict[str, object]:
    try:
        return {"cases": [asdict(one) for one in _cases(model, cell, bases, rounds=rounds)]}
    except LlmprofError as error:
        print(f"  failed: {error.line()}")
        return {"failed": error.line()}


def _cases(
    model: str, cell: Cell, bases: dict[tuple[str, str], RunRecord], *, rounds: int
) -> Iterator[PredictedCase]:
    """Predict first, then measure."""
    source = "file" if model == INSTALLED else "random"
    given = [f"weights.source={source}", "weights.dtype=bf16", f"measure.rounds={rounds}"]
    config = load_settings(model, {}, [*given, *cell.base.split()])
    target = changed_settings(config, cell.change.split())
    key = (model, cell.base)
    if key not in bases:
        bases[key] = profile(config)
    record = bases[key]
    prediction = predict_with_benchmarks(record, target)
    write_prediction(prediction, record.id)
    without = _without_roofs(record)
    tier_b = predict(BaseRun.of(without), target)
    tier_a = [_on_paper(record, settings) for settings in (config, target)]
    pairs = measure_pairs(config, target)
    records = (pairs.base, pairs.target)
    disturbed = sum(len(select_rounds(one.rounds).reasons) for one in records)
    for one in prediction.phases:
        if not {one.phase} <= set(pairs.base.phases) & set(pairs.target.phases):
            continue
        speedup = paired_speedup(*records, one.phase)
        base_s = one.base_step_s.point if one.base_step_s else float("nan")
        yield PredictedCase(
            model=model,
            change=f"{cell.change} ({cell.base})",
            phase=one.phase.value,
            tier=one.tier.value,
            predicted=one.step_s.point / base_s,
            low=one.step_s.low / base_s,
            high=one.step_s.high / base_s,
            measured=1 / speedup.point,
            measured_low=1 / speedup.high,
            measured_high=1 / speedup.low,
            byte_ratio=(one.naive.byte_ratio_step_s or base_s) / base_s,
            roofline=one.naive.roofline_step_s / base_s,
            tier_b=_step_s(tier_b, one.phase) / base_s,
            tier_a=_step_s(tier_a[1], one.phase) / _step_s(tier_a[0], one.phase),
            disturbed_rounds=disturbed,
            pairs=speedup.num_samples,
        )


def _without_roofs(record: RunRecord) -> RunRecord:
    """As if no kernel had ever been measured by itself on this device."""
    ceilings = record.ceilings.model_copy(update={"skinny": (), "attention": (), "host": ()})
    return record.model_copy(update={"ceilings": ceilings})


def _on_paper(record: RunRecord, settings: RunConfig) -> Prediction:
    assert record.model is not None, "the engine's runs have one"
    assert record.weights is not None, "the engine's runs have them"
    ceilings = cached_ceilings(record.environment, record.environment.device)
    device = PaperDevice.of_ceilings(ceilings)
    return predict_on_paper(paper_target(record.model, record.weights, settings, device), device)


def _step_s(prediction: Prediction, phase: Phase) -> float:
    return next(one.step_s.point for one in prediction.phases if one.phase is phase)


def _markdown(cases: Sequence[PredictedCase], failures: Sequence[dict[str, Any]]) -> str:
    if not cases:
        return "No case was measured.\n"
    lines = [
        "# Predicted against measured",
        "",
        f"Made by `python -m tests.benchmarks.prediction_error`; {len(cases)} cases. Step time of the "
        "target over that of the base; each prediction was written down before its target ran.",
        "",
        "| forecast | cases | median error | worst error | median of decode | median of prefill |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    forecasts = {
        "llmprof, tier C (benchmarks of changed kernels)": lambda one: one.predicted,
        "llmprof, tier B (base run alone)": lambda one: one.tier_b,
        "llmprof, tier A (ceilings and model alone)": lambda one: one.tier_a,
        "naive: byte ratio": lambda one: one.byte_ratio,
        "naive: bare roofline": lambda one: one.roofline,
    }
    for name, of in forecasts.items():
        found = score(cases, of)
        by_phase = [
            f"{score(ones, of).median_error:.1%}" if ones else ""
            for phase in (Phase.DECODE, Phase.PREFILL)
            for ones in [[one for one in cases if one.phase == phase.value]]
        ]
        lines.append(
            f"| {name} | {found.cases} | {found.median_error:.1%} | {found.worst_error:.1%} "
            f"| {' | '.join(by_phase)} |"
        )
    disturbed = sum(one.disturbed_rounds > 0 for one in cases)
    lines += [
        "",
        f"Inside the 90 % interval: {cover(cases):.0%} (goal {GOAL_COVER:.0%}); median half-width "
        f"{median_half_width(cases):.1%} (goal {GOAL_HALF_WIDTH:.0%}). Goals for tier C: median "
        f"{GOAL_MEDIAN:.0%}, worst {GOAL_WORST:.0%}. Cases with a disturbed round: {disturbed}.",
        "",
        "| model | change (base) | phase | tier | predicted | measured | error | in | bytes | roofline |",
        "| --- | --- | --- | --- | ---: | ---: | ---: | --- | ---: | ---: |",
    ]
    lines += [
        f"| {one.model} | {one.change} | {one.phase} | {one.tier} "
        f"| {one.predicted:.3f} [{one.low:.3f}, {one.high:.3f}] "
        f"| {one.measured:.3f} [{one.measured_low:.3f}, {one.measured_high:.3f}] "
        f"| {one.error(one.predicted):+.1%} | {'yes' if one.inside else 'no'} "
        f"| {one.error(one.byte_ratio):+.1%} | {one.error(one.roofline):+.1%} |"
        for one in cases
    ]
    lines += [
        f"\nNot measured: {one['model']} {one['change']}: {one['failed']}" for one in failures
    ]
    return "\n".join(lines) + "\n"


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    if path.exists():
        yield from (json.loads(line) for line in path.read_text().splitlines() if line.strip())


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", nargs="+", default=list(MODELS), help="names or presets")
    parser.add_argument("--quick", action="store_true", help="six changes, about 5 minutes a model")
    parser.add_argument("--budget-minutes", type=float, default=60.0, help="start no case after")
    parser.add_argument("--rounds", type=int, default=7, help="pairs of each case")
    parser.add_argument("--dir", type=Path, default=Path("reports"), help="where the table goes")
    parser.add_argument("--fresh", action="store_true", help="forget the rows of earlier calls")
    return parser.parse_args()


if __name__ == "__main__":
    main()
