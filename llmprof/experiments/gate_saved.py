"""`gate check`: saved runs in, a gate's result out. Nothing is measured."""

import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import PurePath

from llmprof import __version__
from llmprof.analysis.comparable import why_not_comparable
from llmprof.analysis.gate_check import judge_budgets, judge_saved, made_unstable, unstable
from llmprof.analysis.gate_looks import TimedRule
from llmprof.analysis.gate_metrics import DEFAULT_TIMED, gate_rules
from llmprof.analysis.gate_verdict import exit_code, gate_verdict, judge_counts
from llmprof.analysis.metrics import exact_counters, metric_named
from llmprof.analysis.unpaired import MIN_LAUNCHES
from llmprof.errors import NotComparableError
from llmprof.schema.cost import Phase
from llmprof.schema.gate_result import GateArm, GateResult, SettingsLocation
from llmprof.schema.report import Report
from llmprof.schema.run import RunRecord, Tool
from llmprof.schema.settings import GateSettings


def check_saved(
    baseline: Sequence[Report],
    candidate: Sequence[Report],
    settings: GateSettings,
    *,
    floors: Mapping[str, float],
    argv: tuple[str, ...] = (),
    location: SettingsLocation | None = None,
) -> GateResult:
    """Judge saved launches by `settings`; without a baseline by its budgets alone.

    Raises:
        NotComparableError: no baseline and no budgets, or a baseline of other work, another machine
            or other software.
        InputError: a name that is no metric.
    """
    started = time.perf_counter()
    check_comparable(baseline, candidate, settings)
    judgements = judge_budgets(settings.budgets, candidate)
    if baseline:
        judgements += judge_saved(
            _timed_rules(settings, min(len(baseline), len(candidate))),
            baseline,
            candidate,
            floors,
            asked_for=bool(settings.metrics),
        )
    if reason := unstable([*baseline, *candidate]):
        judgements = made_unstable(judgements, reason)
    if baseline:
        counts = [[exact_counters(one.run) for one in side] for side in (baseline, candidate)]
        rules = gate_rules(settings).counts
        judgements += judge_counts(rules, *counts, asked_for=bool(settings.metrics))
    verdict = gate_verdict(judgements)
    run = candidate[0].run
    return GateResult(
        command="check",
        created=datetime.now(UTC),
        tool=Tool(version=__version__, argv=tuple(PurePath(word).name for word in argv)),
        title=" ".join(
            [run.model.name if run.model else run.settings.model, *run.settings.workload.sizes]
        ),
        device=run.environment.device_name,
        baseline=_arm(baseline[0].run) if baseline else None,
        candidate=_arm(run),
        verdict=verdict,
        exit_code=exit_code(verdict, settings),
        judgements=tuple(judgements),
        num_launches=len(baseline) + len(candidate),
        elapsed_s=time.perf_counter() - started,
        location=location,
    )


def check_comparable(
    baseline: Sequence[Report], candidate: Sequence[Report], settings: GateSettings
) -> None:
    """Raises NotComparableError where there is nothing, or nothing like it, to compare with."""
    if not baseline and not settings.budgets:
        raise NotComparableError(
            "there is no baseline, and no budget to check without one",
            remedy="Give --baseline RUN, or budgets in the settings",
        )
    first, *others = [one.run for one in (*baseline, *candidate)]
    reasons = [reason for one in others for reason in why_not_comparable(first, one)]
    if reasons:
        raise NotComparableError(
            f"these runs may not be compared: {'; '.join(dict.fromkeys(reasons))}",
            remedy="Measure the baseline again, here and alike",
        )


def _timed_rules(settings: GateSettings, launches: int) -> tuple[TimedRule, ...]:
    """By default the times, and the roof fractions, which do not move when the machine does.

    Not of single launches: how far those of the same code differ in their fractions nobody calibrates.
    """
    rules = gate_rules(settings).timed
    if settings.metrics or launches < MIN_LAUNCHES:
        return rules
    fractions = [f"{phase.value}.roof_fraction.p50" for phase in (Phase.PREFILL, Phase.DECODE)]
    return tuple(
        TimedRule(metric_named(name), settings.tolerance) for name in (*DEFAULT_TIMED, *fractions)
    )


def _arm(run: RunRecord) -> GateArm:
    return GateArm(
        label=run.id,
        model=run.model.name if run.model else run.settings.model,
        versions=run.environment.versions,
        fingerprint=run.environment.fingerprint,
        output_sha256=run.output_sha256,
        compute_dtype=run.engine.compute_dtype,
        weight_bytes=run.engine.weight_bytes,
    )
