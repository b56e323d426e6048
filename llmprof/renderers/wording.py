"""One word for each thing of a report, the same in the terminal, the page and the figures."""

from llmprof.renderers.marks import slug
from llmprof.schema.cost import Phase
from llmprof.schema.ledger import HiddenTerm, Ledger, Part, PartTime
from llmprof.schema.report import Report, RooflinePoint
from llmprof.schema.verdict import Limit, Saturation, Verdict

PART_MEANINGS: dict[Part, str] = {
    Part.MEMORY_WEIGHTS: "reading weights at the read ceiling",
    Part.MEMORY_KV: "reading and writing the KV cache at the read ceiling",
    Part.MEMORY_OTHER: "scores, logits, copies and activations beyond the cache, at the read ceiling",
    Part.COMPUTE: "arithmetic at the matmul ceiling, in ops that arithmetic limits",
    Part.FIXED_COST: "what each op or kernel costs whatever its size",
    Part.LOSS: "time of the ops above their roofs: what better kernels could give back",
    Part.GAPS: "the device waits between kernels",
    Part.COMMUNICATION: "collectives between devices",
    Part.HOST: "the step outside every op: interpreter, dispatch, scheduling",
}
LIMIT_NAMES: dict[Limit, str] = {
    Limit.MEMORY: "memory side",
    Limit.COMPUTE: "compute side",
    Limit.FIXED_COST: "fixed cost",
    Limit.ELEMENTWISE: "elementwise",
    Limit.HOST: "host",
    Limit.COMMUNICATION: "communication",
    Limit.MIXTURE: "mixture",
    Limit.INCONCLUSIVE: "inconclusive",
}
SATURATION_NAMES: dict[Saturation, str] = {
    Saturation.SATURATED: "saturated",
    Saturation.UNSATURATED: "unsaturated",
    Saturation.KERNEL_LIMITED: "kernel-limited",
    Saturation.UNKNOWN: "not known",
}
TOKEN_NAMES: dict[Phase, str] = {
    Phase.PREFILL: "prompt tok/s",
    Phase.DECODE: "output tok/s",
    Phase.MIXED: "prompt and output tok/s",
}


def ceiling_name(limit: Limit, report: Report) -> str:
    """The ceiling that a saturation is a fraction of: "read ceiling", "bf16 matmul ceiling"."""
    if limit is Limit.MEMORY:
        return "read ceiling"
    if limit is Limit.COMPUTE and report.roof:
        return f"{report.roof.matmul_dtype} matmul ceiling"
    return "ceiling"


def verdict_words(verdict: Verdict) -> str:
    """Both answers in two or three words: "memory side, saturated"; "inconclusive" is one."""
    limit = LIMIT_NAMES[verdict.limit]
    if verdict.saturation is Saturation.UNKNOWN:
        return limit
    return f"{limit}, {SATURATION_NAMES[verdict.saturation]}"


def unsaid_reasons(verdict: Verdict) -> tuple[str, ...]:
    """Reasons that the sentence does not give already."""
    return tuple(one_line(reason) for reason in verdict.reasons if reason not in verdict.sentence)


def one_line(text: str) -> str:
    """`text` on one line with every control character visible: it came from a file or a person."""
    return "".join(char if char.isprintable() else " " for char in text).strip()


def model_name(report: Report) -> str:
    run = report.run
    return one_line(run.model.name if run.model else run.settings.model)


def is_whole_phase(point: RooflinePoint) -> bool:
    """Whether it stands for a phase, and not for a part of one."""
    return point.label == point.phase.value


def point_key(point: RooflinePoint) -> str:
    """Ties the row of a point to its mark in the figure."""
    return f"point-{slug(point.label)}"


def part_key(ledger: Ledger, part: PartTime) -> str:
    """Ties the row of a part to its mark in the figure."""
    return f"part-{ledger.phase.value}-{slug(part.part.label)}"


def hidden_key(ledger: Ledger, term: HiddenTerm) -> str:
    return f"hidden-{ledger.phase.value}-{slug(term.name)}-{slug(term.under)}"


def stamps(report: Report) -> tuple[str, ...]:
    """What must be seen before any number."""
    run = report.run
    found = []
    if run.status == "partial":
        reason = f": {one_line(run.status_reason)}" if run.status_reason else ""
        found.append(f"PARTIAL RUN{reason}")
    if run.engine.random_weights:
        found.append("RANDOM WEIGHTS")
    if report.roof is None:
        found.append("NO CEILINGS: nothing is judged")
    return tuple(found)


def tested_words(verdict: Verdict) -> str:
    """Which interventions a verdict survived; empty where none was tried.

    Without a verdict its ledger's forecasts were tested all the same, and the words say so.
    """
    if not verdict.interventions:
        return ""
    named: dict[bool | None, list[str]] = {True: [], False: [], None: []}
    for one in verdict.interventions:
        named[one.survived].append(one.kind.value.replace("_", " "))
    subject = "its ledger" if verdict.limit is Limit.INCONCLUSIVE else "it"
    words = [
        f"{answer} {', '.join(named[survived])}"
        for answer, survived in (
            (f"{subject} survived", True),
            (f"{subject} was CONTRADICTED by", False),
            ("nothing was told by", None),
        )
        if named[survived]
    ]
    return f"Tested: {'; '.join(words)}."
