"""Two forecasts that need no ledger, beside which a prediction has to prove itself."""

from llmprof.analysis.rates import Rates
from llmprof.costs.roofline import compute_s
from llmprof.schema.cost import StepCost
from llmprof.schema.prediction import NaiveForecasts


def naive_forecasts(
    base: StepCost, target: StepCost, rates: Rates, target_rates: Rates, *, base_step_s: float
) -> NaiveForecasts:
    """The base's time by the ratio of required bytes, and by that of the bare rooflines.

    Both may start from the measured base, which is the kindest reading of either rule.
    """
    before = bare_roofline_s(base, rates)
    return NaiveForecasts(
        byte_ratio_step_s=base_step_s * target.traffic.required / base.traffic.required,
        roofline_step_s=base_step_s * bare_roofline_s(target, target_rates) / before,
    )


def bare_roofline_s(cost: StepCost, rates: Rates) -> float:
    """The longer of all required bytes and all FLOPs of the step at the ceilings."""
    bytes_s = cost.traffic.required / rates.read_bytes_per_s
    return max(bytes_s, compute_s(cost, rates.flops_per_s))
