"""The judged run as one self-contained page: no network, complete without JavaScript."""

import json
import shlex
from typing import Any

from llmprof.renderers.ceilings_tables import cached_table, roof_table
from llmprof.renderers.confirmation_tables import (
    confirmation_tables,
    outcome_words,
    outputs_words,
    when_words,
)
from llmprof.renderers.levers_text import lever_sentences, lever_tables
from llmprof.renderers.ops_tables import ops_table
from llmprof.renderers.page_figures import (
    cache,
    ledger,
    machine,
    requests,
    response,
    roofline,
    rounds,
    steps,
    with_rows,
)
from llmprof.renderers.page_template import page_template
from llmprof.renderers.phase_cards import phase_cards
from llmprof.renderers.provenance import environment_facts, kernel_facts, settings_facts
from llmprof.renderers.tables import (
    evidence_table,
    groups_table,
    phases_table,
    sensitivities_table,
)
from llmprof.renderers.timeline_tables import serving_table
from llmprof.renderers.what_ran import Fact, facts, own_cost_share
from llmprof.renderers.wording import model_name, one_line, stamps
from llmprof.schema.confirmation import Confirmation
from llmprof.schema.report import Report

_RAW: dict[str, Any] = {
    "run": {
        "rounds": True,
        "grouped": True,
        "traced": True,
        "trace": True,
        "counted": True,
        "stated_costs": True,
        "weights": {"tensors"},
        "ceilings": {"environment"},
    },
    "timeline": True,
}
"""Left out of the data in the page: the run file has it."""
_UNSAFE_IN_SCRIPT = {char: f"\\u{ord(char):04x}" for char in "<>&\u2028\u2029"}


def render_html(report: Report, *, question: str = "") -> bytes:
    """UTF-8; equal for equal reports: every time and date comes from the report.

    `question` is what the run was made to answer; the page opens with it.
    """
    context = _context(report) | {"question": question}
    return page_template("page.html.j2").render(**context).encode()


def _context(report: Report) -> dict[str, Any]:
    run = report.run
    return {
        "title": f"{model_name(report)} on {one_line(run.environment.device_name)}",
        "run": run,
        "created": f"{run.created:%Y-%m-%d %H:%M} UTC",
        "model": model_name(report),
        "stamps": stamps(report),
        "facts": (*facts(report), Fact("own cost", own_cost_share(report))),
        "headline": one_line(report.headline),
        "cards": phase_cards(report),
        "caveats": report.caveats,
        "roofline": roofline(report),
        "ledger": ledger(report),
        "rounds": rounds(report),
        "conditions": machine(report),
        "best_levers": lever_sentences(report.levers),
        "latencies": with_rows(serving_table(report.serving)),
        "requests": requests(report),
        "response": response(report),
        "cache": cache(report),
        "steps": steps(report),
        "groups": tuple(groups_table(ledger) for ledger in report.ledgers),
        "ops": tuple(map(ops_table, report.ops)),
        "phases": phases_table(report),
        "levers": lever_tables(report.levers),
        "outcomes": tuple(words for one in run.confirmations for words in outcome_words(one)),
        "confirmed": tuple(map(_confirmed, run.confirmations)),
        "judged": with_rows(sensitivities_table(report.ledgers), evidence_table(report)),
        "ceilings": with_rows(roof_table(report), cached_table(report)),
        "environment": environment_facts(report),
        "kernels": kernel_facts(report),
        "settings": settings_facts(report),
        "command": one_line(shlex.join(run.tool.argv)),
        "data": _data(report),
    }


def _confirmed(confirmation: Confirmation) -> dict[str, Any]:
    return {
        "when": when_words(confirmation),
        "outputs": outputs_words(confirmation.outputs),
        "tables": with_rows(*confirmation_tables(confirmation)),
        "caveats": confirmation.caveats,
    }


def _data(report: Report) -> str:
    """The judged part of the report as JSON that cannot end its script element."""
    text = json.dumps(report.model_dump(mode="json", exclude=_RAW), separators=(",", ":"))
    for char, escaped in _UNSAFE_IN_SCRIPT.items():
        text = text.replace(char, escaped)
    return text
