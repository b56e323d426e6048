"""The table of a gate and its sentences: the terminal, the summary and the page say the same."""

from llmprof import units
from llmprof.renderers.metric_format import NOTHING, change_text, formatter, value_text
from llmprof.renderers.tables import Table
from llmprof.schema.gate_result import Check, GateResult, GateVerdict, Judgement

HEADLINES = {
    GateVerdict.PASS: "No regression",
    GateVerdict.FAIL: "Regression",
    GateVerdict.INCONCLUSIVE: "Inconclusive",
    GateVerdict.UNSTABLE: "The machine was too unstable to tell",
}
COLUMNS = ("metric", "baseline", "candidate", "change", "allowed", "detectable", "verdict")


def gate_table(result: GateResult) -> Table:
    """One row per judgement, what failed first."""
    ranked = sorted(result.judgements, key=lambda one: _rank(one.verdict))
    return Table(
        caption="Each metric against what is allowed; detectable: what these pairs show in 4 of 5",
        columns=COLUMNS,
        rows=tuple(_row(judgement) for judgement in ranked),
        prose=frozenset({6}),
    )


def reasons_table(result: GateResult) -> Table:
    return Table(
        caption="What each verdict rests on",
        columns=("metric", "judged by", "reason"),
        rows=tuple(
            (one.metric.name, one.check.value.replace("_", " "), reason_text(one))
            for one in result.judgements
        ),
        prose=frozenset({1, 2}),
    )


def _rank(verdict: GateVerdict) -> int:
    order = (GateVerdict.FAIL, GateVerdict.UNSTABLE, GateVerdict.INCONCLUSIVE, GateVerdict.PASS)
    return order.index(verdict)


def _row(one: Judgement) -> tuple[str, ...]:
    return (
        one.metric.name,
        value_text(one.metric, one.baseline),
        value_text(one.metric, one.candidate),
        change(one),
        allowed(one),
        NOTHING if one.minimum_detectable is None else units.percent(one.minimum_detectable),
        verdict_word(one),
    )


def change(one: Judgement) -> str:
    """Relative change with its interval; of counts the change alone."""
    if one.ratio is not None:
        return change_text(one.ratio)
    if one.baseline and one.candidate is not None and one.check is not Check.BUDGET:
        return units.signed_percent(one.candidate / one.baseline - 1)
    return NOTHING


def allowed(one: Judgement) -> str:
    if one.tolerance is not None:
        return units.percent(one.tolerance)
    text = formatter(one.metric)
    limits = []
    if one.at_most is not None:
        limits.append(f"at most {text(one.at_most)}")
    if one.at_least is not None:
        limits.append(f"at least {text(one.at_least)}")
    return ", ".join(limits)


def verdict_word(one: Judgement) -> str:
    return "PASS, better" if one.improved else one.verdict.value.upper()


def reason_text(one: Judgement) -> str:
    if one.pairs_needed is None:
        return one.reason
    return f"{one.reason}; about {units.number_of(one.pairs_needed, 'pair')} would show a change of the tolerance"


def sentence(one: Judgement) -> str:
    """One judgement on one line: "decode.tpot_s.p50 +6.1 % [+5.2, +7.0], allowed 3.0 %"."""
    moved = value_text(one.metric, one.candidate) if one.check is Check.BUDGET else change(one)
    return f"{one.metric.name} {moved}, allowed {allowed(one)}"


def headline(result: GateResult) -> str:
    """The verdict in words, with the number of metrics that it is due to."""
    due = [one for one in result.judgements if one.verdict is result.verdict]
    words = HEADLINES[result.verdict]
    if result.verdict is GateVerdict.PASS:
        better = sum(one.improved for one in result.judgements)
        return f"{words}; {better} better" if better else words
    return f"{words}: {'; '.join(sentence(one) for one in due)}"


def effort(result: GateResult) -> str:
    """What it took: pairs, spoiled ones, launches, time."""
    spoiled = sum(pair.rejected is not None for pair in result.pairs)
    words = []
    if result.pairs:
        words.append(units.number_of(len(result.pairs) - spoiled, "pair"))
    if spoiled:
        words.append(f"{spoiled} more spoiled by the machine")
    words += [
        "1 launch" if result.num_launches == 1 else f"{result.num_launches} launches",
        units.seconds(result.elapsed_s),
    ]
    return ", ".join(words)
