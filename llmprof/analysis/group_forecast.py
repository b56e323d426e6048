"""The time of one op group under other settings: its roof again, and its measured loss kept."""

from dataclasses import dataclass

from llmprof.analysis.fixed_cost import HAVE_LINKS
from llmprof.analysis.kernel_keys import kernel_key
from llmprof.analysis.op_roof import link_time_s
from llmprof.analysis.prediction_target import Target
from llmprof.analysis.rates import Rates
from llmprof.analysis.small_ops import SmallOps
from llmprof.analysis.spans import Span
from llmprof.analysis.step_split import GroupSplit, StepWork
from llmprof.schema.cost import PROJECTIONS, OpCost, OpGroup, Phase
from llmprof.schema.prediction import KernelTime
from llmprof.schema.settings import AttentionKind

_SLOWEST_UNPACKING = 4.0
"""A kernel that converts numbers moves them at a quarter of the read ceiling or faster; without a
benchmark of it the point lies between."""
_SLOWEST_STANDARD = 8.0
"""Standard attention takes at most so many times as long as flash attention with the same share of its
roof: its kernels are torch's, one after the other, and fewer bytes are no part of the reason. Benchmarks of
both on a CPU lie 1.7 to 8.3 apart (bf16 cache, contexts of 512 to 16,384, contiguous and paged)."""
_STREAMED_SHARE = 0.8
"""Of the read ceiling, at which decode attention is assumed to read a long cache where no benchmark of
it is known. Chosen once, in sight of a batch sweep of the demo model: that sweep does not confirm it."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """Of one op group, or of the time between them."""

    span: Span
    basis: str
    is_measured: bool = True
    """Whether every kernel in it has a roof that was measured."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One side of a prediction: the settings, a step's work, and the ceilings it runs under."""

    target: Target
    work: StepWork
    rates: Rates

    def link_s(self, group: OpGroup) -> float:
        return link_time_s(self.work.of(group), self.rates, self.work.cache_bytes)


@dataclass(frozen=True, slots=True)
class GroupChange:
    """Both sides of one op group, and what is known about its kernels."""

    group: OpGroup
    phase: Phase
    split: GroupSplit
    """As the base run has it."""
    base: Setting
    target: Setting
    timed: KernelTime | None
    """Its kernel in `base` and in `target`, each by itself."""
    small_ops: SmallOps
    other_device: bool

    @property
    def same_kernel(self) -> bool:
        return kernel_key(self.group, self.base.target, self.base.work.cost.shape) == kernel_key(
            self.group, self.target.target, self.target.work.cost.shape
        )

    @property
    def same_work(self) -> bool:
        return _work(self.base.work.of(self.group)) == _work(self.target.work.of(self.group))


def forecast_group(change: GroupChange) -> Forecast:
    """Prediction of one group that the base run has timed.

    A group whose kernel and work are those of the base takes the base's time. Else a measured pair of
    kernel times goes first, then the roofs of the same kernel, then those of another.
    """
    if not change.target.work.of(change.group) and (
        change.group in HAVE_LINKS or change.base.work.of(change.group)
    ):
        return Forecast(Span.exactly(0.0), "nothing to do")
    if change.other_device:
        return _on_another_device(change)
    if (
        change.same_kernel
        and change.same_work
        and not change.target.target.settings.parallel.tensor > 1
    ):
        return Forecast(Span.exactly(change.split.time_s), "as it is: the same kernel and work")
    if change.timed is not None:
        return _by_kernel_times(change, change.timed)
    if change.group not in HAVE_LINKS:
        return _small(change)
    return _by_roofs(change)


def _by_kernel_times(change: GroupChange, timed: KernelTime) -> Forecast:
    """The base's time x (target kernel / base kernel).

    What the run takes beyond the bare kernel may grow with it, stay as it is, be nothing for the target,
    or change by as much the other way: the interval holds all of them.
    """
    time_s = change.split.time_s
    scaled = time_s * timed.target_s / timed.base_s
    stays = max(timed.target_s + (time_s - timed.base_s), 0.0)
    others = (stays, timed.target_s)
    mirrored = (max(2 * scaled - other, 0.0) for other in others)
    span = Span.around(scaled, *others, *mirrored).widened(timed.spread)
    return Forecast(span, f"{timed.method}: {timed.base_s / timed.target_s:.2f} x as fast")


def _small(change: GroupChange) -> Forecast:
    size = sum(op.traffic.total for op in change.target.work.of(change.group))
    if not change.base.work.of(change.group) or not size:
        return Forecast(Span.exactly(change.split.time_s), "as it is: no traffic is counted")
    span, basis = change.small_ops.predict(change.group, change.phase, size)
    return Forecast(span, basis)


def _by_roofs(change: GroupChange) -> Forecast:
    """Fixed cost, and the link of the target with the base's ratio of time to roof."""
    split, fixed_s = change.split, change.split.fixed_cost_s
    before_s, after_s = change.base.link_s(change.group), change.target.link_s(change.group)
    if not before_s:
        return Forecast(Span.exactly(split.time_s), "as it is: no link is known", is_measured=False)
    net_s = max(split.time_s - fixed_s, 0.0)
    kept = fixed_s + net_s * after_s / before_s
    stays = max(fixed_s + net_s + after_s - before_s, fixed_s + after_s)
    if change.same_kernel and _streams_a_cache(change):
        # One short call a layer: a run that timed it at one size cannot tell what a call costs from
        # what a byte costs, but the kernel's own benchmark can.
        per_link = min(net_s / before_s, 1 / _STREAMED_SHARE)
        point = fixed_s + net_s + per_link * (after_s - before_s)
        return Forecast(
            Span.around(max(point, fixed_s + after_s), kept, stays),
            f"its roof again at {_STREAMED_SHARE:.0%} for what is read more or less; the rest of its "
            "time is paid once a call",
        )
    if change.same_kernel:
        return Forecast(
            Span.around(kept, stays), "its roof again, with the measured ratio of time to roof"
        )
    slow = max(kept, split.time_s * _growth(change))
    at_worst = "no gain at all"
    if _loses_flash(change):
        slow *= _SLOWEST_STANDARD
        at_worst = f"{_SLOWEST_STANDARD:.0f} times as long, for standard attention"
    unpacking_s = _unpacking_s(change)
    return Forecast(
        Span(
            kept + 2 * unpacking_s,
            min(kept, fixed_s + after_s) + unpacking_s,
            slow + _SLOWEST_UNPACKING * unpacking_s,
        ),
        "another kernel, whose roof was not measured: from this kernel's ratio of time to roof "
        f"to {at_worst}",
        is_measured=False,
    )


def _streams_a_cache(change: GroupChange) -> bool:
    """Flash attention of single new tokens: it shares all sequences and heads out to the threads."""
    flash = change.target.target.settings.attention.kind is AttentionKind.FLASH
    return flash and change.group is OpGroup.ATTENTION and change.phase is Phase.DECODE


def _loses_flash(change: GroupChange) -> bool:
    """A kernel that nobody measured may be slower than the one before: this one is."""
    kinds = [side.target.settings.attention.kind for side in (change.base, change.target)]
    lost = kinds == [AttentionKind.FLASH, AttentionKind.STANDARD]
    return lost and change.group is OpGroup.ATTENTION


def _unpacking_s(change: GroupChange) -> float:
    """Of weights that are written out as floats first and read back, at the read ceiling: at best."""
    if change.group not in PROJECTIONS:
        return 0.0
    copies = [
        sum(op.traffic.copies for op in side.work.of(change.group))
        for side in (change.base, change.target)
    ]
    return max(0.0, copies[1] - copies[0]) / change.target.rates.read_bytes_per_s


def _growth(change: GroupChange) -> float:
    """How many times as many FLOPs: a kernel that gains nothing takes as much longer."""
    before = sum(op.flops for op in change.base.work.of(change.group))
    after = sum(op.flops for op in change.target.work.of(change.group))
    return max(1.0, after / before) if before else 1.0


def _on_another_device(change: GroupChange) -> Forecast:
    """The loss ratio of this device on the roofs of the other: anything from none to its square."""
    split, fixed_s = change.split, change.target.work.fixed_cost_s(change.group)
    before_s, after_s = change.base.link_s(change.group), change.target.link_s(change.group)
    if not split.has_link or not before_s:
        scale = fixed_s / split.fixed_cost_s if split.fixed_cost_s else 1.0
        point = split.time_s * scale
        return Forecast(
            Span.around(point, point / 2, 2 * point), "scaled by the fixed cost of an op", False
        )
    loss = max((split.time_s - split.fixed_cost_s) / before_s, 1.0)
    return Forecast(
        Span(fixed_s + loss * after_s, fixed_s + after_s, fixed_s + loss * loss * after_s),
        "the other device's roof, with this device's ratio of time to roof",
        is_measured=False,
    )


def _work(ops: tuple[OpCost, ...]) -> list[tuple[str, float, float, int]]:
    return [(op.name, op.flops, op.traffic.total, op.calls) for op in ops]
