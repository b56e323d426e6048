"""What a reader must know to read the numbers correctly, each with what could be done about it."""

from collections.abc import Iterable, Sequence

from llmprof import units
from llmprof.analysis.host_caveats import host_caveats
from llmprof.analysis.phase_case import PhaseCase
from llmprof.analysis.phase_caveats import phase_caveats
from llmprof.analysis.telemetry import telemetry_caveats
from llmprof.analysis.validity import RoundSelection
from llmprof.schema.measurement import Caveat
from llmprof.schema.report import Roof
from llmprof.schema.run import Round, RunRecord
from llmprof.schema.settings import WorkloadKind

THROTTLING = ("sw_thermal_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown")


def build_caveats(
    record: RunRecord, cases: Sequence[PhaseCase], roof: Roof | None
) -> tuple[Caveat, ...]:
    """Those of the run, those of its rounds, those of each phase; each once."""
    found = [*_of_run(record, roof), *record.caveats, *record.ceilings.caveats]
    for case in cases[:1]:
        found += [*_rejected("clean", case.clean), *_rejected("grouped", case.grouped)]
        found += [*_throttled(record.rounds), *telemetry_caveats(case.clean.rounds)]
        found += host_caveats(record, case.clean.rounds)
    for case in cases:
        found += phase_caveats(case, roof)
    return tuple({(one.code, one.phase, one.message): one for one in found}.values())


def _of_run(record: RunRecord, roof: Roof | None) -> Iterable[Caveat]:
    if record.status == "partial":
        yield Caveat(
            code="partial",
            message=f"the measurement is partial: {record.status_reason or 'it was cut short'}",
            remedy="Run it again to the end.",
        )
    if record.engine.random_weights:
        yield Caveat(
            code="random-weights",
            message="the weights are random: speed and traffic are real, the text is not",
        )
    if record.engine.attention_fallback is not None:
        yield Caveat(
            code="attention-backend",
            message=f"attention ran on {record.engine.attention_backend}, which is not the first "
            f"choice: {record.engine.attention_fallback}",
            remedy="Mend what is named, or set attention.backend to what you want.",
        )
    if _fused_beside_a_library(record):
        yield Caveat(
            code="fused-kernels",
            message=f"steps of up to {record.engine.fused_rows} rows ran products of our own, with what "
            "lies around them; on this device nobody has compared them with the library's",
            remedy="Compare them: `llmprof compare CONFIG --base execution.fused=off "
            "--cand execution.fused=on`",
        )
    yield from _compiled(record)
    if roof is None:
        yield Caveat(
            code="no-ceilings",
            message="no ceiling was read beside the rounds: nothing is judged",
        )
    if record.warmup.settled is None:
        yield Caveat(
            code="not-tested",
            message=f"whether step times had settled was not tested: {record.warmup.rounds} warm-up "
            "rounds were asked for",
            remedy="Leave measure.warmup at auto.",
        )
    elif not record.warmup.settled:
        yield Caveat(
            code="not-settled",
            message=f"step times had not settled after {record.warmup.rounds} warm-up rounds",
            remedy="Quiet the machine, or warm up longer.",
        )
    yield Caveat(
        code="counted",
        message="bytes and FLOPs are counted from shapes, no hardware counter was read: "
        "GB/s is a lower bound of the real traffic",
    )


def _compiled(record: RunRecord) -> Iterable[Caveat]:
    """What torch.compile hides from the counts, and what it did while steps were timed."""
    if record.engine.compiled_steps:
        yield Caveat(
            code="compiled-steps",
            message="decode steps are compiled by torch.compile, which makes one kernel of several ops: "
            "launches and activations are counted, and groups are timed, as the engine runs them "
            "without it, and scaled to the compiled step",
        )
    meanwhile = sum(one.compiled_steps for one in record.rounds)
    if meanwhile:
        steps = units.number_of(meanwhile, "step")
        yield Caveat(
            code="compiled-while-timed",
            message=f"torch.compile compiled {steps} in the measured "
            "rounds: some of their steps hold the time that it took",
            remedy="Leave measure.warmup at auto, or ask for more warm-up rounds.",
        )


def _fused_beside_a_library(record: RunRecord) -> bool:
    """Float weights alone have a library's products, and only steps of few rows leave them."""
    engine, workload = record.engine, record.settings.workload
    if not engine.fused_rows or engine.packed_rows is not None:
        return False
    serves = workload.kind is WorkloadKind.TRACE
    return serves or workload.batch <= engine.fused_rows


def _throttled(rounds: Sequence[Round]) -> Iterable[Caveat]:
    """Of every clean round: one that was rejected for its clock must not take the reason along."""
    reasons = [
        {reason for reason in one.telemetry.event_reasons if reason in THROTTLING}
        for one in rounds
        if one.telemetry is not None
    ]
    seen = [reason for reason in reasons if reason]
    if seen:
        names = ", ".join(sorted(set().union(*seen))).replace("_", " ")
        yield Caveat(
            code="throttled",
            message=f"the device held its clock down in {len(seen)} of {len(rounds)} "
            f"rounds: {names}",
            remedy="Check cooling and power; the ceilings beside each round saw the same clock.",
        )


def _rejected(name: str, selection: RoundSelection) -> Iterable[Caveat]:
    if not selection.reasons:
        return
    why = ", ".join(sorted(set(selection.reasons.values())))
    rejected, total = len(selection.reasons), selection.num_total
    kept = "left out" if rejected < total else "invalid, and used for want of others"
    yield Caveat(
        code="contended",
        message=f"{rejected} of {total} {name} rounds are {kept}: {why}",
        remedy="Stop other programs, or give the run fewer threads (execution.threads).",
    )
