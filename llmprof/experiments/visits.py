"""Several visits to one cell as one run: their rounds one after the other."""

from collections.abc import Sequence
from dataclasses import dataclass

from llmprof.experiments.differing_launches import with_what_weights
from llmprof.schema.ceilings import CeilingReading
from llmprof.schema.measurement import Caveat
from llmprof.schema.run import DeviceTelemetry, Round, RunRecord
from llmprof.schema.settings import RunConfig


def visit_settings(config: RunConfig, visits: int) -> RunConfig:
    """The settings of one visit: its share of the rounds, and no grid."""
    share = -(-config.measure.rounds // visits)
    measure = config.measure.model_copy(update={"rounds": share})
    return config.model_copy(update={"measure": measure})


def joined(records: Sequence[RunRecord]) -> RunRecord:
    """One record with the rounds of all, their times counted from the start of the first.

    What is recorded once per run (counted steps, own cost) is the first one's, but for what all of them
    have part in: a warm-up that did not settle, the most memory, the CPU time of sensors.
    """
    first = records[0]
    if len(records) == 1:
        return first
    partial = [one for one in records if one.status == "partial"]
    return first.model_copy(
        update={
            "rounds": _shifted([(one, one.rounds) for one in records], first),
            "grouped": _shifted([(one, one.grouped) for one in records], first),
            "caveats": _caveats(records),
            "warmup": next((r.warmup for r in records if r.warmup.settled is False), first.warmup),
            "own_cost": first.own_cost.model_copy(
                update={"sampler_cpu_s": sum(r.own_cost.sampler_cpu_s for r in records)}
            ),
            "peak_memory_bytes": max(
                (r.peak_memory_bytes for r in records if r.peak_memory_bytes is not None),
                default=None,
            ),
            "status": "partial" if partial else "complete",
            "status_reason": partial[0].status_reason if partial else None,
        }
    )


@dataclass(frozen=True, slots=True)
class _Shift:
    """Moves the times of a later run onto the clock of the first."""

    seconds: float

    def reading(self, one: CeilingReading | None) -> CeilingReading | None:
        return one and one.model_copy(update={"time_s": one.time_s + self.seconds})

    def telemetry(self, one: DeviceTelemetry | None) -> DeviceTelemetry | None:
        return one and one.model_copy(
            update={
                "sm_clock_samples": tuple(
                    sample.model_copy(update={"time_s": sample.time_s + self.seconds})
                    for sample in one.sm_clock_samples
                )
            }
        )

    def round(self, one: Round, index: int) -> Round:
        steps = tuple(
            step.model_copy(update={"start_s": step.start_s + self.seconds}) for step in one.steps
        )
        return one.model_copy(
            update={
                "index": index,
                "before": self.reading(one.before),
                "after": self.reading(one.after),
                "steps": steps,
                "telemetry": self.telemetry(one.telemetry),
            }
        )


def _shifted(
    visits: Sequence[tuple[RunRecord, Sequence[Round]]], first: RunRecord
) -> tuple[Round, ...]:
    moved: list[Round] = []
    for record, rounds in visits:
        shift = _Shift((record.created - first.created).total_seconds())
        moved += [shift.round(one, len(moved) + place) for place, one in enumerate(rounds)]
    return tuple(moved)


def _caveats(records: Sequence[RunRecord]) -> tuple[Caveat, ...]:
    """Of all, each once; visits must give the same tokens as much as rounds must."""
    found = list(dict.fromkeys(caveat for record in records for caveat in record.caveats))
    first = records[0]
    odd = next((one for one in records if one.output_sha256 != first.output_sha256), None)
    if odd is not None:
        weights = with_what_weights(first.engine, odd.engine)
        found.append(
            Caveat(
                code="outputs-differ",
                message=f"two visits of the same greedy workload gave different tokens{weights}",
                remedy="check the machine's memory and the kernels before trusting a figure",
            )
        )
    return tuple(found)
