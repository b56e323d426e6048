"""`gate run`: candidate against baseline in the same job, interleaved, before any FAIL confirmed."""

import time
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import PurePath

from llmprof import __version__
from llmprof.analysis.gate_looks import judge_pairs, least_pairs
from llmprof.analysis.gate_metrics import gate_rules
from llmprof.analysis.gate_verdict import exit_code, gate_verdict, judge_counts, judge_timed
from llmprof.analysis.metrics import round_metric_names
from llmprof.errors import InputError, MeasurementFailedError
from llmprof.experiments.arm_messages import ArmDescription
from llmprof.experiments.arm_process import ArmPlan
from llmprof.experiments.differing_launches import how_they_differ
from llmprof.experiments.gate_arms import BASELINE, CANDIDATE, GateArms
from llmprof.schema.gate_result import GateArm, GateResult, SettingsLocation
from llmprof.schema.measurement import Caveat
from llmprof.schema.run import Tool
from llmprof.schema.settings import RunConfig
from llmprof.store.noise_floors import find_noise_floor
from llmprof.store.progress import Progress

_NUMERICS = ("model", "weights", "kv_cache", "attention", "workload")
"""Groups of settings that may change what tokens come out."""


def run_gate(
    baseline: ArmPlan,
    candidate: ArmPlan,
    *,
    progress: Progress,
    argv: tuple[str, ...] = (),
    location: SettingsLocation | None = None,
    allow_underpowered: bool = False,
    allow_other_outputs: bool = False,
) -> GateResult:
    """Measure both arms and judge the candidate by its own `gate` settings.

    Raises:
        InputError: a metric that paired rounds have not, too few rounds for so many of them, arms of
            different work, or a tolerance below the noise floor where one was calibrated (not with
            `allow_underpowered`).
        MeasurementFailedError: an arm failed, or the two gave different tokens where they must not.
        LlmprofError: what loading a model raises, with the arm's name.
    """
    started = time.perf_counter()
    settings = candidate.config.gate
    rules = gate_rules(settings)
    check_metrics([rule.metric.name for rule in rules.timed])
    check_rounds(settings.rounds, len(rules.timed))
    check_same_work(baseline.config, candidate.config)
    arms = GateArms(
        (baseline, candidate),
        settings,
        [rule.metric.name for rule in rules.timed],
        progress,
        before_first=None if allow_underpowered else partial(_check_powered, candidate.config),
    )
    verdicts, pairs = judge_pairs(rules.timed, settings.rounds, arms.measure)
    _check_outputs(arms, allow_other_outputs=allow_other_outputs)
    judgements = [
        *(judge_timed(rule, verdicts[rule.metric.name], pairs) for rule in rules.timed),
        *judge_counts(rules.counts, *arms.counters, asked_for=bool(settings.metrics)),
    ]
    verdict = gate_verdict(judgements)
    return GateResult(
        command="run",
        created=datetime.now(UTC),
        tool=Tool(version=__version__, argv=tuple(PurePath(word).name for word in argv)),
        title=work_title(candidate.config),
        device=arms.descriptions[CANDIDATE].environment.device_name,
        baseline=_arm(baseline, arms.descriptions[BASELINE]),
        candidate=_arm(candidate, arms.descriptions[CANDIDATE]),
        verdict=verdict,
        exit_code=exit_code(verdict, settings),
        judgements=tuple(judgements),
        pairs=pairs,
        num_launches=arms.num_launches,
        elapsed_s=time.perf_counter() - started,
        location=location,
        caveats=tuple(_caveats(arms)),
    )


def check_metrics(names: Sequence[str]) -> None:
    """Raises InputError for a metric that single rounds of two processes do not have."""
    known = round_metric_names()
    for name in names:
        if name not in known:
            raise InputError(
                f"gate.metrics: {name} is not judged by paired rounds: rates are the reciprocals of "
                "times, and the ceilings of one machine cancel in the ratio of its arms",
                remedy=f"Use {', '.join(known)}, or llmprof gate check",
            )
    if not names:
        raise InputError(
            "gate.metrics names no time, and counts need no rounds",
            remedy=f"Add one of {', '.join(known)}, or use llmprof gate check",
        )


def check_rounds(rounds: int, num_metrics: int) -> None:
    """Raises InputError for a look of so few pairs that no regression could ever be confirmed."""
    needed = least_pairs(num_metrics)
    if rounds < needed:
        raise InputError(
            f"gate.rounds is {rounds}: so few pairs cannot show a regression in {num_metrics} metrics "
            "at once",
            remedy=f"Set gate.rounds to {needed} or more, or name fewer metrics",
        )


def check_same_work(baseline: RunConfig, candidate: RunConfig) -> None:
    """Raises InputError where the two arms would not do the same work."""
    one, other = baseline.workload.model_dump(), candidate.workload.model_dump()
    for key, value in one.items():
        if value != other[key]:
            raise InputError(
                f"the arms do different work: workload.{key} is {value} in the baseline and "
                f"{other[key]} in the candidate",
                remedy="Give both the same workload",
            )


def _check_powered(config: RunConfig, description: ArmDescription) -> None:
    """Raises InputError for a tolerance that this machine's noise hides, where it was calibrated."""
    floor = find_noise_floor(description.environment.fingerprint, config)
    if floor is None:
        return
    floors = {one.name: one.paired_floor for one in floor.metrics}
    for rule in gate_rules(config.gate).timed:
        lowest = floors.get(rule.metric.name, 0.0)
        if rule.tolerance < lowest:
            raise InputError(
                f"{rule.metric.name}: a tolerance of {rule.tolerance:.2%} is below the noise floor "
                f"of {lowest:.2%} that llmprof gate calibrate found here",
                remedy="Raise the tolerance or gate.rounds, quiet the machine and calibrate again, "
                "or add --allow-underpowered",
            )


def work_title(config: RunConfig) -> str:
    """`smollm2-135m-instruct b1 p512 o32`: a name for tables and trend pages."""
    name = PurePath(config.model).name or config.model
    return " ".join([name, *config.workload.sizes])


def _check_outputs(arms: GateArms, *, allow_other_outputs: bool) -> None:
    """A fast build that computes something else is no improvement."""
    base, cand = arms.descriptions
    hashes = base.output_sha256, cand.output_sha256
    if hashes[0] == hashes[1] or None in hashes or allow_other_outputs:
        return
    one, other = (plan.config for plan in arms.plans)
    if base.model == cand.model and all(
        getattr(one, key) == getattr(other, key) for key in _NUMERICS
    ):
        raise MeasurementFailedError(
            "baseline and candidate gave different tokens for the same settings"
            f"{how_they_differ(base, cand)}",
            remedy="Check the candidate's kernels; if another rounding is meant, add "
            "--allow-other-outputs",
        )


def _arm(plan: ArmPlan, description: ArmDescription) -> GateArm:
    return GateArm(
        label=plan.label,
        model=description.model.name if description.model else plan.config.model,
        versions=description.environment.versions,
        fingerprint=description.environment.fingerprint,
        output_sha256=description.output_sha256,
        compute_dtype=description.engine.compute_dtype,
        weight_bytes=description.engine.weight_bytes,
    )


def _caveats(arms: GateArms) -> list[Caveat]:
    base, cand = arms.descriptions
    found = []
    if arms.unsettled:
        found.append(
            Caveat(
                code="not-settled",
                message=f"the warm-up of {arms.unsettled} of {2 * arms.num_launches} processes had "
                "not settled",
                remedy="Quiet the machine",
            )
        )
    if base.environment.fingerprint != cand.environment.fingerprint:
        found.append(
            Caveat(
                code="other-environment",
                message="the arms ran in different environments: the difference is theirs too",
            )
        )
    if base.output_sha256 != cand.output_sha256:
        found.append(Caveat(code="outputs-differ", message="the arms gave different tokens"))
    if cand.engine.random_weights:
        found.append(
            Caveat(
                code="random-weights",
                message="the weights are random: speed and traffic are real, the text is not",
            )
        )
    return found
