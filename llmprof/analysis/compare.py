"""Two runs side by side: what differs, whether that is shown, and where the difference lies."""

from collections.abc import Iterator, Mapping, Sequence

from llmprof.analysis.comparable import why_not_comparable
from llmprof.analysis.compare_headline import headline
from llmprof.analysis.compare_ledger import part_changes
from llmprof.analysis.compare_metrics import launches_to_show, metric_changes
from llmprof.analysis.compare_pairs import paired_changes, round_pairs
from llmprof.errors import NotComparableError
from llmprof.schema.comparison import (
    Arrangement,
    ComparedSide,
    Comparison,
    LiveComparison,
    SettingChange,
)
from llmprof.schema.confirmation import Confirmation, OutputComparison
from llmprof.schema.measurement import Caveat
from llmprof.schema.report import Report
from llmprof.schema.settings import RunConfig

_NOT_COMPARED = ("workload", "measure", "gate", "model", "device")
"""Groups of settings that must agree, or that do not change what is measured."""


def compare_reports(
    baseline: Sequence[Report],
    candidate: Sequence[Report],
    *,
    force: bool = False,
    noise_floors: Mapping[str, float] | None = None,
) -> Comparison:
    """Compare the launches of two sides; one run is one launch.

    Args:
        baseline: one or more runs of the same settings.
        candidate: as many or more or fewer of other settings, or of other code.
        force: compare what should not be compared, and say so in the document.
        noise_floors: metric -> relative difference that two launches of the same code have here.

    Raises:
        NotComparableError: without `force`, for other work or another machine.
    """
    reasons = _reasons([*baseline, *candidate])
    if reasons and not force:
        raise NotComparableError(
            f"these runs may not be compared: {'; '.join(reasons)}",
            remedy="Measure both alike on one machine, or add --force",
        )
    metrics = metric_changes(baseline, candidate, noise_floors or {})
    parts = part_changes(baseline[0].ledgers, candidate[0].ledgers)
    return Comparison(
        baseline=_side(baseline, "baseline"),
        candidate=_side(candidate, "candidate"),
        not_comparable=reasons,
        settings=setting_changes(baseline[0].run.settings, candidate[0].run.settings),
        same_outputs=_same_outputs(baseline[0], candidate[0]),
        metrics=metrics,
        parts=parts,
        caveats=_caveats(baseline, candidate),
        headline=headline(metrics, parts),
        launches_needed=launches_to_show(metrics, len(baseline), len(candidate)),
    )


def compare_live(
    baseline: Report,
    candidate: Report,
    outputs: OutputComparison,
    arrangement: Arrangement,
    *,
    confirmation: Confirmation | None = None,
    not_predicted: str | None = None,
) -> Comparison:
    """Compare two arms whose rounds took turns; other work is stamped, since it was asked for."""
    pairs = round_pairs(baseline.run, candidate.run)
    metrics = paired_changes(baseline, candidate, pairs, arrangement)
    parts = part_changes(baseline.ledgers, candidate.ledgers)
    before, after = baseline.run.settings, candidate.run.settings
    return Comparison(
        baseline=_side((baseline,), "baseline"),
        candidate=_side((candidate,), "candidate"),
        not_comparable=_reasons((baseline, candidate)),
        settings=setting_changes(before, after, without=("measure", "gate", "sweep")),
        same_outputs=outputs.same,
        metrics=metrics,
        parts=parts,
        caveats=_caveats((baseline,), (candidate,)),
        headline=headline(metrics, parts),
        live=LiveComparison(
            arrangement=arrangement,
            num_pairs=pairs.num_measured,
            num_disturbed=pairs.num_disturbed,
            num_used=len(pairs.baseline),
            outputs=outputs,
            confirmation=confirmation,
            not_predicted=not_predicted,
        ),
    )


def setting_changes(
    baseline: RunConfig, candidate: RunConfig, *, without: Sequence[str] = _NOT_COMPARED
) -> tuple[SettingChange, ...]:
    """Every switch that was set differently, dotted, but for whole groups `without`."""
    one, other = _flat(baseline, without), _flat(candidate, without)
    return tuple(
        SettingChange(key=key, baseline=value, candidate=other[key])
        for key, value in one.items()
        if value != other[key]
    )


def _flat(config: RunConfig, without: Sequence[str]) -> dict[str, str]:
    groups = config.model_dump(mode="json", exclude=set(without))
    return {
        f"{group}.{key}" if key else group: "null" if value is None else str(value)
        for group, values in groups.items()
        for key, value in (values.items() if isinstance(values, dict) else [("", values)])
    }


def _reasons(reports: Sequence[Report]) -> tuple[str, ...]:
    """Every run against the first."""
    first, *others = reports
    found = [reason for one in others for reason in why_not_comparable(first.run, one.run)]
    return tuple(dict.fromkeys(found))


def _same_outputs(baseline: Report, candidate: Report) -> bool | None:
    hashes = baseline.run.output_sha256, candidate.run.output_sha256
    return None if None in hashes else hashes[0] == hashes[1]


def _side(reports: Sequence[Report], label: str) -> ComparedSide:
    first = reports[0]
    run = first.run
    return ComparedSide(
        label=label,
        run_ids=tuple(one.run.id for one in reports),
        created=run.created,
        model=run.model.name if run.model else run.settings.model,
        device=run.environment.device_name,
        threads=run.engine.threads,
        weights=_weights(first),
        weight_bytes=run.engine.weight_bytes,
        output_sha256=run.output_sha256,
        roof=first.roof,
        points=first.points,
    )


def _weights(report: Report) -> str:
    settings = report.run.settings.weights
    if settings.quantization.value != "none":
        return settings.quantization.value
    return report.run.engine.compute_dtype


def _caveats(baseline: Sequence[Report], candidate: Sequence[Report]) -> tuple[Caveat, ...]:
    """Those of the runs, each once, with the side that it is about where it is not about both."""
    base, cand = _by_content(baseline), _by_content(candidate)
    return (
        *_of_one_side("baseline", base, cand),
        *_of_one_side("candidate", cand, base),
        *(caveat for key, caveat in base.items() if key in cand),
    )


def _by_content(reports: Sequence[Report]) -> dict[object, Caveat]:
    return {(one.code, one.phase, one.message): one for report in reports for one in report.caveats}


def _of_one_side(
    label: str, own: Mapping[object, Caveat], other: Mapping[object, Caveat]
) -> Iterator[Caveat]:
    for key, caveat in own.items():
        if key not in other:
            yield caveat.model_copy(update={"message": f"{label}: {caveat.message}"})
