"""Reports at the edge: what is missing, what is more than it can be, what is hostile."""

from llmprof.schema.cost import Phase
from llmprof.schema.ledger import Ledger, Part, PartTime
from llmprof.schema.measurement import Estimate
from llmprof.schema.report import Report
from llmprof.schema.run import RunRecord
from llmprof.schema.verdict import Limit, Saturation
from tests.unit.renderers.report_factory import a_ledger, a_report, about

HOSTILE = '</script><script>alert("x")</script> $x^2$ [bold] |`\\ \u2028 模型'


def _changed(report: Report, **changes: object) -> Report:
    return report.model_copy(update=changes)


def _run(report: Report, **changes: object) -> Report:
    run: RunRecord = report.run.model_copy(update=changes)
    return _changed(report, run=run)


def no_roof() -> Report:
    """Nothing was read, so nothing is judged."""
    return _changed(a_report(), roof=None, points=(), ledgers=(), verdicts=())


def no_ledger() -> Report:
    return _changed(a_report(), ledgers=())


def no_points() -> Report:
    return _changed(a_report(), points=())


def nothing() -> Report:
    return _changed(no_roof(), phases=(), caveats=(), costs=())


def one_sample() -> Report:
    """One round: every estimate is a point."""
    report = a_report(rounds=1)
    point = Estimate(point=0.0156, low=0.0156, high=0.0156, confidence=0.5, num_samples=1)
    phases = tuple(p.model_copy(update={"step_s": point, "num_rounds": 1}) for p in report.phases)
    return _changed(report, phases=phases)


def partial() -> Report:
    reason = "interrupted after 2 of 8 rounds"
    return _run(a_report(rounds=2), status="partial", status_reason=reason)


def above_the_roof() -> Report:
    report = a_report()
    return _changed(
        report,
        points=tuple(
            p.model_copy(
                update={
                    "roof_fraction": about(1.32),
                    "attainable_flops_per_s": p.achieved_flops_per_s.point / 1.32,
                }
            )
            for p in report.points
        ),
        verdicts=tuple(
            v.model_copy(update={"roof_fraction": about(1.32)}) for v in report.verdicts
        ),
    )


def inconclusive() -> Report:
    report = a_report()
    changes = {
        "limit": Limit.INCONCLUSIVE,
        "saturation": Saturation.UNKNOWN,
        "saturation_fraction": None,
        "roof_fraction": None,
        "limits": (),
        "parts_named": (),
        "reasons": (
            "3 of 8 rounds were contended",
            "the step varies by 14 %",
            "the warm-up had not settled",
        ),
    }
    return _changed(report, verdicts=tuple(v.model_copy(update=changes) for v in report.verdicts))


def negative_loss() -> Report:
    """A step of 10 ms: 11 ms by the parts, minus 1 ms."""
    parts = ((Part.MEMORY_WEIGHTS, 0.011), (Part.LOSS, -0.001))
    ledger: Ledger = a_ledger(Phase.DECODE).model_copy(
        update={
            "step_s": about(0.010),
            "parts": tuple(
                PartTime(part=part, time_s=about(time), share=time / 0.010) for part, time in parts
            ),
        }
    )
    return _changed(a_report(), ledgers=(ledger,))


def odd() -> Report:
    """Inconclusive, and a part below zero."""
    return _changed(inconclusive(), ledgers=negative_loss().ledgers)


def all_zero_parts() -> Report:
    zero = Estimate(point=0.0, low=0.0, high=0.0, confidence=0.9, num_samples=4)
    parts = (PartTime(part=Part.HOST, time_s=zero, share=0.0),)
    ledger: Ledger = a_ledger(Phase.DECODE).model_copy(update={"parts": parts, "groups": ()})
    return _changed(a_report(), ledgers=(ledger,))


def named(name: str) -> Report:
    report = a_report()
    assert report.run.model is not None
    return _run(report, model=report.run.model.model_copy(update={"name": name}))


def hostile() -> Report:
    """Every text that comes from a file or from a person."""
    report = named(HOSTILE)
    caveat = report.caveats[0].model_copy(update={"message": HOSTILE, "remedy": HOSTILE})
    verdict = report.verdicts[0].model_copy(update={"sentence": HOSTILE, "reasons": (HOSTILE,)})
    tool = report.run.tool.model_copy(update={"argv": ("llmprof", "run", HOSTILE)})
    environment = report.run.environment.model_copy(update={"device_name": HOSTILE})
    report = _run(report, tool=tool, environment=environment)
    return _changed(report, headline=HOSTILE, caveats=(caveat,), verdicts=(verdict,))


def no_model() -> Report:
    """A workload that is not a language model."""
    return _run(a_report(), model=None, weights=None)


FACTORIES = (
    a_report,
    no_roof,
    no_ledger,
    no_points,
    nothing,
    one_sample,
    partial,
    above_the_roof,
    inconclusive,
    negative_loss,
    all_zero_parts,
    hostile,
    no_model,
)
NAMES = tuple(factory.__name__ for factory in FACTORIES)
REPORTS = tuple(factory() for factory in FACTORIES)
