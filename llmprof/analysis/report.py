"""From the raw record to the judged report. Pure: no device, no clock, no torch."""

from collections.abc import Sequence

from llmprof.analysis.caveats import build_caveats
from llmprof.analysis.headline import headline
from llmprof.analysis.intervention_outcomes import confirm
from llmprof.analysis.latency import measure_latency
from llmprof.analysis.ledger import build_ledger
from llmprof.analysis.levers import find_levers
from llmprof.analysis.op_caveats import op_caveats
from llmprof.analysis.op_table import tabulate_ops
from llmprof.analysis.own_cost import own_cost_caveats, own_cost_share
from llmprof.analysis.phase_case import gather_phase
from llmprof.analysis.phases import step_time_s
from llmprof.analysis.plausibility import plausibility_caveats
from llmprof.analysis.roof import build_roof
from llmprof.analysis.serving import measure_serving
from llmprof.analysis.serving_caveats import serving_caveats
from llmprof.analysis.telemetry import energy_per_token
from llmprof.analysis.timeline import build_timeline
from llmprof.analysis.utilization import with_utilization
from llmprof.analysis.validity import select_rounds
from llmprof.analysis.verdict import judge_phase
from llmprof.devices.lookup import NoDatasheet, datasheet_of
from llmprof.errors import InputError
from llmprof.schema.datasheet import Datasheet
from llmprof.schema.intervention import Intervention
from llmprof.schema.ledger import Ledger
from llmprof.schema.report import Report
from llmprof.schema.run import RunRecord
from llmprof.schema.verdict import Verdict


def build_report(record: RunRecord) -> Report:
    """Recompute every printed number of a run from its raw samples.

    Raises:
        InputError: a record that no measurement can have written.
    """
    _check_times(record)
    clean, grouped = select_rounds(record.rounds), select_rounds(record.grouped)
    roof = build_roof(clean.rounds, record.ceilings)
    gathered = [gather_phase(record, clean, grouped, phase) for phase in record.phases]
    cases = [case for case in gathered if case is not None]
    ledgers = tuple(
        build_ledger(case.phase, case.splits, case.measurement.step_s)
        for case in cases
        if case.splits is not None
    )
    tables = [tabulate_ops(record, case) for case in cases]
    verdicts = tuple(
        _confirmed(judge_phase(record, case, roof, table), ledgers, record.interventions)
        for case, table in zip(cases, tables, strict=True)
    )
    ops = tuple(table for table in tables if table is not None)
    own = own_cost_share(record, [case.measurement for case in cases])
    serving = measure_serving(record, clean.rounds)
    found = datasheet_of(record.environment)
    datasheet = found if isinstance(found, Datasheet) else None
    points = tuple(with_utilization(point, datasheet) for case in cases for point in case.points)
    return Report(
        run=record,
        roof=roof,
        phases=tuple(case.measurement for case in cases),
        latency=measure_latency(clean.rounds),
        serving=serving,
        costs=tuple(case.work.cost for case in cases if case.work is not None),
        points=points,
        ledgers=ledgers,
        own_cost=own,
        ops=ops,
        verdicts=verdicts,
        caveats=(
            *build_caveats(record, cases, roof),
            *op_caveats(record, ops),
            *own_cost_caveats(own),
            *serving_caveats(record, serving),
            *plausibility_caveats(record.ceilings, points, datasheet),
        ),
        headline=headline(cases, verdicts),
        energy_per_token_j=energy_per_token(clean.rounds, record.energy),
        datasheet=datasheet,
        no_datasheet=found.reason if isinstance(found, NoDatasheet) else None,
        levers=find_levers(record, cases),
        timeline=build_timeline(clean.rounds),
    )


def _confirmed(
    verdict: Verdict, ledgers: Sequence[Ledger], interventions: Sequence[Intervention]
) -> Verdict:
    ledger = next((one for one in ledgers if one.phase is verdict.phase), None)
    outcomes = confirm(ledger, interventions)
    return verdict.model_copy(update={"interventions": outcomes}) if outcomes else verdict


def _check_times(record: RunRecord) -> None:
    """Every rate divides by a step's time."""
    for one in (*record.rounds, *record.grouped, *record.traced):
        if any(step_time_s(sample) <= 0 for sample in one.steps):
            raise InputError(
                f"run {record.id} holds a step that took no time (round {one.index})",
                remedy="The file is damaged: measure again.",
            )
