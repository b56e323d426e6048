"""Every kernel that a change of settings changes, measured by itself before the target runs."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from llmprof.analysis.host_forecast import replays
from llmprof.analysis.kernel_keys import kernel_key, phase_with_kernel
from llmprof.analysis.prediction_target import Target
from llmprof.analysis.step_forecast import IN_THE_SKELETON
from llmprof.ceilings.passing_weights import WeightStream
from llmprof.experiments.product_benchmark import benchmark_products
from llmprof.experiments.skeleton import Skeleton, SkeletonStep
from llmprof.experiments.timed_pairs import kernel_time, repeat_until_agreed
from llmprof.instruments.snapshot import resolve_threads
from llmprof.schema.cost import OpGroup, Phase, StepCost
from llmprof.schema.prediction import KernelBenchmarks, KernelTime, OverheadTime
from llmprof.store.progress import NullProgress, Progress

_ROUNDS = 7
_SKELETON = "its kernels in a model without weights, base and target in turn"


def benchmark_kernels(
    base: Target,
    target: Target,
    phases: Sequence[Phase],
    *,
    device: str,
    progress: Progress | None = None,
) -> KernelBenchmarks:
    """Pairs of times for the phases that both sides have; nothing where nothing changes.

    Raises:
        CapabilityError: the engine cannot do what the target asks for, or memory is too small.
        MeasurementFailedError: memory ran out.
    """
    progress = progress or NullProgress()
    threads = (_threads(base), _threads(target))
    kernels: list[KernelTime] = []
    overheads: list[OverheadTime] = []
    for phase in phases:
        progress.note(f"kernels of {phase.value} that change, by themselves")
        kernels += benchmark_products(base, target, phase, device, threads)
        kernels += _in_skeletons(base, target, phase, device, threads)
        overheads += _overheads(base, target, phase, device)
    return KernelBenchmarks(kernels=tuple(kernels), overheads=tuple(overheads))


def _in_skeletons(
    base: Target, target: Target, phase: Phase, device: str, threads: tuple[int, int]
) -> Iterator[KernelTime]:
    before, after = base.cost(phase), target.cost(phase)
    changed = [
        group
        for group in IN_THE_SKELETON
        if _differs(group, base, target, before, after)
        and before.of_groups(group).ops
        and phase_with_kernel(group, base, target, phase) is phase
    ]
    if not changed:
        return
    stream = _stream((before, after), device)
    pairs = _take_turns(
        Skeleton(base, before, stream, device=device, threads=threads[0]),
        Skeleton(target, after, stream, device=device, threads=threads[1]),
        on_cpu=device == "cpu",
    )
    for group in changed:
        times = [
            (one.group_s.get(group, 0.0), other.group_s.get(group, 0.0)) for one, other in pairs
        ]
        if min(min(pair) for pair in times) > 0:
            yield kernel_time(phase, group, times, method=_SKELETON, on_cpu=device == "cpu")


def _differs(
    group: OpGroup, base: Target, target: Target, before: StepCost, after: StepCost
) -> bool:
    if kernel_key(group, base, before.shape) != kernel_key(group, target, after.shape):
        return True
    return before.of_groups(group).ops != after.of_groups(group).ops


def _overheads(base: Target, target: Target, phase: Phase, device: str) -> Iterator[OverheadTime]:
    """The base's step started as the target's will be, beside itself.

    As many bytes pass by as the weights of either side have: what starts an op finds more of its own
    still there where fewer of them came before it.
    """
    if not replays(base.settings, target.settings, phase):
        return
    settings = base.settings.model_copy(update={"execution": target.settings.execution})
    started, cost, passing = replace(base, settings=settings), base.cost(phase), target.cost(phase)
    stream = _stream((cost, passing), device)
    pairs = _take_turns(
        Skeleton(base, cost, stream, device=device, threads=_threads(base)),
        Skeleton(started, cost, stream, device=device, threads=_threads(started), passing=passing),
        on_cpu=device == "cpu",
    )
    for group in dict.fromkeys(group for one, _ in pairs for group in one.group_s):
        yield OverheadTime(
            phase=phase,
            group=group,
            base_s=min(one.group_s.get(group, 0.0) for one, _ in pairs),
            target_s=min(other.group_s.get(group, 0.0) for _, other in pairs),
        )
    yield OverheadTime(
        phase=phase,
        group=None,
        base_s=min(one.outside_s for one, _ in pairs),
        target_s=min(other.outside_s for _, other in pairs),
    )


def _stream(costs: Sequence[StepCost], device: str) -> WeightStream:
    """As large as the weights of a step: what passes by is as cold as they are."""
    return WeightStream(max(int(cost.traffic.weights) for cost in costs), device)


def _take_turns(
    base: Skeleton, target: Skeleton, *, on_cpu: bool
) -> list[tuple[SkeletonStep, SkeletonStep]]:
    return repeat_until_agreed(
        lambda: (base.run(), target.run()),
        lambda pair: (sum(pair[0].group_s.values()), sum(pair[1].group_s.values())),
        repeats=_ROUNDS,
        on_cpu=on_cpu,
    )


def _threads(one: Target) -> int:
    return resolve_threads(one.settings.execution.threads)
