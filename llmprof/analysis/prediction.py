"""What a run would take under other settings: a saved run and settings in, a Prediction out."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from llmprof.analysis.phase_case import gather_phase
from llmprof.analysis.phase_forecast import Elsewhere, PhaseBase, predict_phase
from llmprof.analysis.prediction_target import (
    Target,
    available_of_run,
    available_on,
    capacity_of,
    changes_between,
    target_of_run,
    with_batch,
)
from llmprof.analysis.step_forecast import SplitCase
from llmprof.analysis.validity import MAX_REJECTED_FRACTION, select_rounds
from llmprof.errors import InputError
from llmprof.schema.ceilings import Ceilings
from llmprof.schema.cost import Phase
from llmprof.schema.measurement import Caveat
from llmprof.schema.prediction import (
    Capacity,
    KernelBenchmarks,
    PhasePrediction,
    Prediction,
    Tier,
)
from llmprof.schema.run import RunRecord
from llmprof.schema.settings import RunConfig
from llmprof.units import byte_count

_ASSUMPTIONS: Final = (
    "the machine stays as it was: ceilings that drift move base and target alike",
    "a kernel keeps its measured ratio of time to roof; a loss that stays as long as it is instead is "
    "in the interval",
    "flash attention to a cache reads what it has more to read at 80 % of the ceiling, as the CPU "
    "kernel's benchmark does, and pays the rest of its measured time once a call",
)
_UNKNOWN_KERNEL: Final = (
    "a kernel that nobody measured reaches the share of its roof that the one before it reached; the "
    "interval goes as far as no gain at all, for standard attention in place of flash as far as eight "
    "times as long, and weights that are unpacked for many rows move between the read ceiling and a "
    "quarter of it"
)
_OTHER_DEVICE: Final = (
    "the same kernels run on the other device and lose as large a share of its roofs",
    "its host starts ops as fast as this one, or between half and twice as fast",
)


@dataclass(frozen=True, slots=True)
class BaseRun:
    """A saved run, split once: many settings can be predicted from it."""

    record: RunRecord
    target: Target
    cases: Mapping[Phase, SplitCase]

    @classmethod
    def of(cls, record: RunRecord) -> "BaseRun":
        """Split every phase of a run.

        Raises:
            InputError: no phase of it was split into op groups.
            CapabilityError: a run without a model, or of served requests.
        """
        clean, grouped = select_rounds(record.rounds), select_rounds(record.grouped)
        gathered = [gather_phase(record, clean, grouped, phase) for phase in record.phases]
        cases = [one for case in gathered if case and (one := SplitCase.of(case))]
        if not cases:
            raise InputError(
                f"run {record.id} has no phase that is split into op groups",
                remedy="Measure it with measure.passes clean and grouped, and live ceilings",
            )
        return cls.of_cases(record, {one.case.phase: one for one in cases})

    @classmethod
    def of_cases(cls, record: RunRecord, cases: Mapping[Phase, SplitCase]) -> "BaseRun":
        """From phases that were gathered already.

        Raises:
            CapabilityError: a run without a model, or of served requests.
        """
        return cls(record, target_of_run(record, record.settings), cases)


def predict(
    base: BaseRun,
    settings: RunConfig,
    *,
    benchmarks: KernelBenchmarks | None = None,
    ceilings: Ceilings | None = None,
) -> Prediction:
    """The run's model under `settings`; `ceilings` are those of another device.

    Raises:
        InputError: settings that contradict each other, or that only a file could answer.
        CapabilityError: settings whose steps cannot be predicted.
    """
    record, given = base.record, benchmarks or KernelBenchmarks()
    if ceilings is None and settings.device != record.settings.device:
        raise InputError(
            f"device={settings.device} is another device, and its ceilings are not known",
            remedy="Give them with --device-ceilings FILE, or --on DEVICE on that machine",
        )
    elsewhere = None if ceilings is None else Elsewhere(ceilings)
    asked = target_of_run(record, settings, ceilings)
    available = available_of_run(record) if ceilings is None else available_on(ceilings.environment)
    capacity = capacity_of(asked, available)
    target = largest_fitting(asked, capacity)
    phases = () if target is None else target.phases
    known = [phase for phase in phases if phase in base.cases]
    predicted = tuple(
        predict_phase(PhaseBase(record, base.target, base.cases), target, phase, given, elsewhere)
        for phase in known
        if target is not None
    )
    device = record.environment if ceilings is None else ceilings.environment
    return Prediction(
        tier=weakest_tier(predicted),
        base=record.id,
        device=device.device_name,
        changes=changes_between(record.settings, (target or asked).settings),
        settings=(target or asked).settings,
        capacity=capacity,
        phases=predicted,
        benchmarks=given,
        assumptions=_assumptions(predicted, other_device=ceilings is not None),
        caveats=(
            *capacity_caveats(asked, capacity),
            *_missing_phases(record, [phase for phase in phases if phase not in base.cases]),
            *_doubtful_base(base, known),
            *_other_kernels(record.settings, settings),
            *_other_fusion(base.target, asked),
        ),
    )


def largest_fitting(asked: Target, capacity: Capacity) -> Target | None:
    """The target, with as many sequences as fit; None where not one does."""
    if capacity.fits:
        return asked
    return with_batch(asked, capacity.largest_batch) if capacity.largest_batch else None


def weakest_tier(phases: Sequence[PhasePrediction]) -> Tier:
    return min((one.tier for one in phases), default=Tier.C)


def capacity_caveats(asked: Target, capacity: Capacity) -> Iterator[Caveat]:
    """What to say where memory decides."""
    if capacity.fits:
        return
    need = capacity.weight_bytes + capacity.kv_bytes + capacity.activation_bytes
    batch = asked.settings.workload.batch
    then = (
        f"predicted at {capacity.largest_batch}, the most that fit"
        if capacity.largest_batch
        else "not even one sequence of this length fits"
    )
    yield Caveat(
        code="does-not-fit",
        message=f"a batch of {batch} needs {byte_count(need)}, and "
        f"{byte_count(capacity.available_bytes)} is available: {then}",
        remedy="Store fewer bytes (weights.quantization, kv_cache.dtype) or shorten the sequences",
    )


def _missing_phases(record: RunRecord, missing: Sequence[Phase]) -> Iterator[Caveat]:
    for phase in missing:
        yield Caveat(
            code="phase-not-in-base",
            message=f"run {record.id} has no {phase.value} to predict from",
            remedy="Measure a base run with workload.context=real",
            phase=phase,
        )


def _doubtful_base(base: BaseRun, phases: Sequence[Phase]) -> Iterator[Caveat]:
    """What the run's own report would say of the rounds that everything is predicted from."""
    clean = select_rounds(base.record.rounds)
    if clean.rejected_fraction > MAX_REJECTED_FRACTION:
        why = ", ".join(sorted(set(clean.reasons.values())))
        kept = "the others" if len(clean.reasons) < clean.num_total else "them"
        yield Caveat(
            code="contended",
            message=f"{len(clean.reasons)} of {clean.num_total} rounds of run {base.record.id} were "
            f"disturbed ({why}): what is predicted rests on {kept}",
            remedy="Measure the base again on a quiet machine",
        )
    for phase in phases:
        if base.cases[phase].case.measurement.num_rounds == 1:
            yield Caveat(
                code="few-rounds",
                message=f"the {phase.value} of run {base.record.id} is one usable round: what moments "
                "differ by is not known, and not in the interval",
                remedy="Measure the base with more rounds (measure.rounds)",
                phase=phase,
            )


def _other_kernels(base: RunConfig, target: RunConfig) -> Iterator[Caveat]:
    asked = target.attention.backend
    if asked is not base.attention.backend:
        yield Caveat(
            code="backend-not-predicted",
            message=f"attention.backend={asked.value} moves as many bytes and does as many FLOPs: "
            "how fast its kernels are is not predicted",
            remedy=f"Measure both: `llmprof compare CONFIG --cand attention.backend={asked.value}`",
        )


def _other_fusion(base: Target, target: Target) -> Iterator[Caveat]:
    before, after = base.options.fused_rows, target.options.fused_rows
    if before != after:
        kernels = "fused kernels" if after else "a kernel for every op"
        yield Caveat(
            code="fusion-not-measured",
            message=f"with {kernels}, other launches and activations are counted, and the weights that "
            "are read stay; how fast these kernels are is not known here",
            remedy="Measure both: `llmprof compare CONFIG --base execution.fused=off "
            "--cand execution.fused=on`",
        )


def _assumptions(phases: Sequence[PhasePrediction], *, other_device: bool) -> tuple[str, ...]:
    """In words; those that are about one group stand beside it."""
    if other_device:
        return _OTHER_DEVICE
    if any(one.tier is Tier.B for one in phases):
        return (*_ASSUMPTIONS, _UNKNOWN_KERNEL)
    return _ASSUMPTIONS
