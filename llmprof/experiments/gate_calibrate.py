"""`gate calibrate`: both arms the same, to learn what this machine's noise hides."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from math import log, sqrt
from statistics import fmean, median, stdev

import numpy as np
from numpy.typing import NDArray

from llmprof.analysis.effect_size import detectable, minimum_detectable, pair_spread
from llmprof.analysis.gate_looks import oriented_differences
from llmprof.analysis.gate_metrics import gate_rules
from llmprof.analysis.metrics import metric_named
from llmprof.errors import UnstableMachineError
from llmprof.experiments.arm_process import ArmPlan
from llmprof.experiments.gate_arms import GateArms
from llmprof.experiments.gate_run import check_metrics
from llmprof.schema.gate_result import Look, Pair
from llmprof.schema.noise import MetricNoise, NoiseFloor
from llmprof.schema.settings import RunConfig
from llmprof.store.noise_floors import workload_key
from llmprof.store.progress import Progress

LOOKS = (Look.FIRST, Look.SECOND)
"""As many pairs as an undecided gate takes. `gate.launches` is 2 at least, so both arms are started four
times or more: fewer would leave open how far launches differ."""
MIN_LAUNCHES = 4


@dataclass(frozen=True, slots=True)
class Calibration:
    floor: NoiseFloor
    too_tight: tuple[str, ...]
    """Metrics whose tolerance lies below their floor, with both figures."""


def calibrate_gate(
    config: RunConfig, *, progress: Progress, looks: Sequence[Look] = LOOKS
) -> Calibration:
    """A/A pairs of `looks`, judged as noise.

    Raises:
        UnstableMachineError: the machine spoiled too many pairs.
        LlmprofError: what loading a model raises.
    """
    rules = gate_rules(config.gate).timed
    names = [rule.metric.name for rule in rules]
    check_metrics(names)
    plans = (ArmPlan("first arm", config), ArmPlan("second arm", config))
    arms = GateArms(plans, config.gate, names, progress)
    pairs: list[Pair] = []
    for look in looks:
        taken = [pair for pair in arms.measure(look) if pair.rejected is None]
        if len(taken) < config.gate.rounds:
            raise UnstableMachineError(
                "too many pairs were spoiled by the machine to learn its noise",
                remedy="Stop other programs, or give the run fewer threads (execution.threads)",
            )
        pairs += taken
    metrics = tuple(noise_of(name, pairs) for name in names)
    found = {one.name: one for one in metrics}
    return Calibration(
        floor=NoiseFloor(
            created=datetime.now(UTC),
            environment_fingerprint=arms.descriptions[0].environment.fingerprint,
            workload_key=workload_key(config),
            metrics=metrics,
        ),
        too_tight=tuple(
            f"{rule.metric.name}: tolerance {rule.tolerance:.2%}, noise floor "
            f"{found[rule.metric.name].paired_floor:.2%}"
            for rule in rules
            if rule.tolerance < found[rule.metric.name].paired_floor
        ),
    )


def noise_of(name: str, pairs: Sequence[Pair]) -> MetricNoise:
    """Noise of one metric over A/A pairs: between the turns of a pair, and between processes.

    The unit of the paired floor is the launch: its pairs share the placement of both processes and
    the clocks, and differ from each other by less than from the next launch's. By chance so few
    launches agree better than their pairs do: what the pairs alone leave open is the least.
    """
    differences = oriented_differences(metric_named(name), pairs)
    spread = pair_spread(differences) or 0.0
    means = _launch_means(pairs, differences)
    means_spread = pair_spread(means) or 0.0
    floors = (
        minimum_detectable(means_spread, len(means)) or 0.0,
        minimum_detectable(spread, len(pairs)) or 0.0,
    )
    medians = _process_medians(name, pairs)
    launch_spread = stdev(map(log, medians)) if len(medians) >= MIN_LAUNCHES else None
    launch_floor = None
    if launch_spread is not None:
        launch_floor = detectable(sqrt(2) * launch_spread, len(medians) - 1)
    return MetricNoise(
        name=name,
        pair_spread=spread,
        num_pairs=len(pairs),
        launch_spread=launch_spread,
        num_launches=len(medians),
        paired_floor=max(floors),
        pair_launch_spread=means_spread,
        num_pair_launches=len(means),
        launch_floor=launch_floor,
    )


def _launch_means(pairs: Sequence[Pair], differences: NDArray[np.float64]) -> list[float]:
    """Mean log ratio of the pairs of each launch."""
    by_launch: dict[tuple[Look, int], list[float]] = {}
    for pair, difference in zip(pairs, differences, strict=True):
        by_launch.setdefault((pair.look, pair.launch), []).append(float(difference))
    return [fmean(own) for own in by_launch.values()]


def _process_medians(name: str, pairs: Sequence[Pair]) -> list[float]:
    """Of each process, both arms alike."""
    launches = dict.fromkeys((pair.look, pair.launch) for pair in pairs)
    return [
        median(side(pair)[name] for pair in pairs if (pair.look, pair.launch) == launch)
        for launch in launches
        for side in (_baseline, _candidate)
    ]


def _baseline(pair: Pair) -> dict[str, float]:
    return pair.baseline


def _candidate(pair: Pair) -> dict[str, float]:
    return pair.candidate
