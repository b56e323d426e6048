"""Every file format of a prediction, by the suffix of the file's name."""

import shlex
from collections.abc import Callable
from typing import Final

from llmprof import units
from llmprof.errors import InputError
from llmprof.renderers.document_page import Page, render_page
from llmprof.renderers.inline_svg import inline_svg
from llmprof.renderers.markdown import code, details, escaped, table_lines
from llmprof.renderers.prediction_tables import (
    assumptions_table,
    forecasts_table,
    groups_table,
    memory_table,
    parts_table,
    predicted_part_key,
    steps_table,
)
from llmprof.renderers.prediction_words import (
    TIERS,
    changes_line,
    does_not_fit,
    headline,
    memory_line,
    tier_why,
)
from llmprof.renderers.provenance import dotted_settings
from llmprof.renderers.tables import Table
from llmprof.renderers.what_ran import Fact
from llmprof.renderers.wording import PART_MEANINGS, one_line
from llmprof.schema.prediction import PhasePrediction, Prediction


def prediction_html(prediction: Prediction, *, question: str = "") -> bytes:
    """UTF-8; equal for equal predictions. `question` is what it was made to answer."""
    fits = prediction.capacity.fits
    return render_page(
        Page(
            title=title(prediction),
            brand="what a switch would give",
            when="predicted; nothing of it was measured",
            stamps=() if fits else (does_not_fit(prediction.capacity),),
            facts=_facts(prediction),
            headline=one_line(headline(prediction)),
            figures=_figures(prediction),
            sections=_sections(prediction),
            caveats=prediction.caveats,
            question=question,
        )
    )


def title(prediction: Prediction) -> str:
    """`MODEL: weights.quantization none → int4`."""
    changes = changes_line(prediction)
    model = one_line(prediction.settings.model)
    return f"{model}: {changes}" if changes else f"{model} on {one_line(prediction.device)}"


def _facts(prediction: Prediction) -> tuple[Fact, ...]:
    why = tier_why(prediction)
    return (
        Fact("from", one_line(prediction.base)),
        Fact("changes", changes_line(prediction) or "none: the model alone"),
        Fact("device", one_line(prediction.device)),
        Fact("rests on", f"{TIERS[prediction.tier]}{f'; {why}' if why else ''}"),
        Fact("memory", memory_line(prediction.capacity).removeprefix("memory ")),
    )


def _figures(prediction: Prediction) -> tuple[tuple[str, str], ...]:
    from llmprof.renderers import prediction_ledger_figure as ledger
    from llmprof.renderers import prediction_roofline_figure as roofline

    if not prediction.phases:
        return ()
    tooltips = {
        key: text for phase in prediction.phases for key, text in _spoken_parts(phase).items()
    }
    bars = inline_svg(
        ledger.prediction_ledger_figure(prediction, "svg"),
        name="ledger",
        title="Ledger of one step before and as predicted, by phase",
        description="The tables below hold the same figures.",
        tooltips=tooltips,
    )
    roofs = inline_svg(
        roofline.prediction_roofline_figure(prediction, "svg"),
        name="roofline",
        title="Roofline: each phase before and as predicted, FLOP/s over FLOP/byte",
        description="The tables below hold the same figures.",
    )
    return ((bars, ledger.HOW_TO_READ), (roofs, roofline.HOW_TO_READ))


def _spoken_parts(phase: PhasePrediction) -> dict[str, str]:
    return {
        predicted_part_key(phase, one): (
            f"{one.part.label}: {units.seconds(one.predicted_s)} of a predicted "
            f"{phase.phase.value} step"
            + ("" if one.base_s is None else f", {units.seconds(one.base_s)} before")
            + f". {PART_MEANINGS[one.part].capitalize()}."
        )
        for one in phase.parts
    }


def _sections(prediction: Prediction) -> tuple[tuple[str, tuple[Table, ...]], ...]:
    phases = prediction.phases
    predicted: tuple[tuple[str, tuple[Table, ...]], ...] = ()
    if phases:
        predicted = (
            ("Predicted", (steps_table(prediction), forecasts_table(prediction))),
            ("Ledger, before and after", tuple(map(parts_table, phases))),
            ("How each group was worked out", tuple(map(groups_table, phases))),
        )
    return (
        *predicted,
        ("Memory", (memory_table(prediction),)),
        ("Assumed", (assumptions_table(prediction),)),
        ("Provenance", (_settings(prediction),)),
    )


def _settings(prediction: Prediction) -> Table:
    command = one_line(shlex.join(prediction.argv))
    rows = (("command", command),) if prediction.argv else ()
    return Table(
        caption="Settings of the target",
        columns=("setting", "value"),
        rows=(*rows, *dotted_settings(prediction.settings)),
        prose=frozenset({1}),
    )


def prediction_markdown(prediction: Prediction) -> bytes:
    """Short enough for a pull request."""
    lines = [f"### llmprof predict: {escaped(title(prediction))}", ""]
    lines += [escaped(one_line(headline(prediction))), ""]
    facts = (f"{fact.label}: {fact.value}" for fact in _facts(prediction))
    lines += [*(f"- {escaped(fact)}" for fact in facts), ""]
    for name, tables in _sections(prediction):
        for table in tables if name != "Provenance" else ():
            body = table_lines(table)
            lines += [*body, ""] if name == "Predicted" else details(escaped(table.caption), body)
    lines += [f"- *Caveat.* {escaped(one_line(one.message))}" for one in prediction.caveats]
    if prediction.argv:
        lines += ["", code(shlex.join(prediction.argv)), ""]
    return "\n".join(lines).encode()


def prediction_json(prediction: Prediction) -> bytes:
    return (prediction.model_dump_json(by_alias=True, indent=2) + "\n").encode()


def _figure(kind: str) -> Callable[[Prediction], bytes]:
    def draw(prediction: Prediction) -> bytes:
        from llmprof.renderers.prediction_ledger_figure import prediction_ledger_figure

        return prediction_ledger_figure(prediction, kind)

    return draw


RENDERERS: Final[dict[str, Callable[[Prediction], bytes]]] = {
    ".html": prediction_html,
    ".md": prediction_markdown,
    ".json": prediction_json,
    ".png": _figure("png"),
    ".svg": _figure("svg"),
    ".pdf": _figure("pdf"),
}


def check_prediction_suffix(suffix: str) -> None:
    """Raises InputError for a name that ends in no known format, before anything is predicted."""
    if suffix.lower() not in RENDERERS:
        raise InputError(
            f"no format of a prediction for a name that ends in {suffix!r}",
            remedy=f"Known suffixes: {' '.join(RENDERERS)}",
        )


def render_prediction_file(prediction: Prediction, suffix: str) -> bytes:
    check_prediction_suffix(suffix)
    return RENDERERS[suffix.lower()](prediction)
