"""The judged run on one screen of a terminal."""

import io
from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.text import Text

from llmprof import units
from llmprof.renderers.bars import ledger_bar, ledger_legend
from llmprof.renderers.datasheet_text import utilization
from llmprof.renderers.estimates import point_and_interval
from llmprof.renderers.levers_text import lever_lines
from llmprof.renderers.roofline_text import roofline_lines, roofline_table
from llmprof.renderers.serving_text import serving_lines
from llmprof.renderers.text_layout import flow, side_by_side, wrap, wrap_all
from llmprof.renderers.what_ran import facts, rounds_fact
from llmprof.renderers.wording import (
    TOKEN_NAMES,
    one_line,
    stamps,
    tested_words,
    unsaid_reasons,
    verdict_words,
)
from llmprof.schema.ledger import GroupEntry, Ledger
from llmprof.schema.measurement import Caveat, PhaseMeasurement
from llmprof.schema.report import Report, RooflinePoint
from llmprof.schema.verdict import Limit, Verdict

SCREEN_LINES = 40
MAX_CHART_WIDTH = 70
"""A wider plot says nothing more."""
BESIDE_WIDTH = 36
"""What the list of losses needs to stand beside the plot."""
MIN_CHART_TERMINAL = 60
LOSSES_PER_PHASE = 3
SHOWN_REASONS = 2
MIN_CAVEAT_LINES, MAX_CAVEAT_LINES = 2, 5

_ASCII = str.maketrans(
    {"█": "#", "▓": "%", "▒": ":", "▞": "/", "░": ".", "≡": "x", "▕": "|", "▏": "|"}
    | {"·": "|", "→": "->", "…": "...", "×": "x", "µ": "u"}
)


def render_run(report: Report, console: Console, *, footer: str | None = None) -> None:
    """Print the summary in the console's width; `footer` says where the run file is."""
    unicode = not console.options.ascii_only
    lines = _lines(report, console.width, footer, unicode=unicode)
    for line in lines:
        if not unicode:
            line.plain = line.plain.translate(_ASCII).encode("ascii", "replace").decode()
        line.rstrip()
        console.print(line, no_wrap=True, overflow="ignore", crop=False)


def run_text(
    report: Report, width: int = 80, color: bool = False, *, footer: str | None = None
) -> str:
    """The summary as a string, with ANSI colours where `color` asks for them."""
    console = Console(
        file=io.StringIO(),
        width=width,
        force_terminal=color,
        no_color=not color,
        color_system="standard" if color else None,
    )
    with console.capture() as capture:
        render_run(report, console, footer=footer)
    return capture.get()


def _lines(report: Report, width: int, footer: str | None, *, unicode: bool) -> list[Text]:
    body = [
        *_header(report, width),
        *serving_lines(report.serving, width),
        *_phases(report, width),
        *_roofline_and_losses(report, width, unicode=unicode),
    ]
    # Never wrapped: a path must stay whole to be copied.
    last = [Text(one_line(line), "dim") for line in (footer or "").splitlines()]
    room = SCREEN_LINES - len(body) - len(last)
    levers = wrap_all(lever_lines(report.levers, room - MIN_CAVEAT_LINES), width)
    body += levers
    room -= len(levers)
    return [*body, *_caveats(report.caveats, width, room), *last]


def _header(report: Report, width: int) -> list[Text]:
    model, weights, kv, workload, execution, device, _ = facts(report)
    title = Text.assemble(("llmprof ", "dim"), (model.value, "bold"))
    for stamp in stamps(report):
        title.append(f" · {stamp}", "bold yellow")
    if report.own_cost:
        title.append(f" · own cost {units.percent(report.own_cost.clean_fraction)}", "dim")
    lines = [title]
    lines.append(Text(f"weights {weights.value} · KV {kv.value}"))
    lines.append(Text(f"{workload.value} · {execution.value}"))
    lines.append(Text(f"{device.value} · {rounds_fact(report)}"))
    lines.append(Text(one_line(report.headline), "italic"))
    return wrap_all(lines, width)


def _phases(report: Report, width: int) -> list[Text]:
    lines: list[Text] = []
    for phase in report.phases:
        verdict = next((v for v in report.verdicts if v.phase is phase.phase), None)
        ledger = next((led for led in report.ledgers if led.phase is phase.phase), None)
        point = next((p for p in report.points if p.label == phase.phase.value), None)
        lines += [Text(), *wrap(_phase_title(phase, verdict, point), width)]
        if verdict:
            lines += wrap(_answers(verdict), width)
        if ledger:
            lines += [ledger_bar(ledger, width), *flow(ledger_legend(ledger), width)]
    return lines


def _phase_title(
    phase: PhaseMeasurement, verdict: Verdict | None, point: RooflinePoint | None
) -> Text:
    title = Text()
    title.append(f"{phase.phase.value.upper()} ", "bold")
    title.append(point_and_interval(phase.step_s, units.seconds), "bold")
    rate = units.significant(phase.new_tokens_per_s.point)
    title.append(f" · {rate} {TOKEN_NAMES[phase.phase]}")
    if phase.num_sequences > 1:
        each = units.significant(phase.new_tokens_per_s_per_sequence.point)
        title.append(f" in total, {each} per sequence")
    if verdict and verdict.roof_fraction:
        fraction = point_and_interval(verdict.roof_fraction, units.percent)
        title.append(f" · {fraction} of its roof")
    if point and (shares := utilization(point)):
        title.append(f" · {shares}")
    return title


def _answers(verdict: Verdict) -> Text:
    """What limits and how saturated that link is, in words; then the numbers, then any reasons."""
    text = Text()
    text.append(verdict_words(verdict), "bold")
    if verdict.limit is Limit.INCONCLUSIVE and verdict.reasons:
        text.append(f" · {_first(verdict.reasons)}")
    else:
        text.append(f" · {one_line(verdict.sentence)}")
        if reasons := unsaid_reasons(verdict):
            text.append(f" Not firm: {_first(reasons)}.", "yellow")
    if tested := tested_words(verdict):
        text.append(f" · {tested}", "cyan")
    return text


def _first(reasons: Sequence[str]) -> str:
    """The first reasons and the number of the others: the page has them all."""
    shown = "; ".join(one_line(reason) for reason in reasons[:SHOWN_REASONS])
    more = len(reasons) - SHOWN_REASONS
    return f"{shown}; and {more} more" if more > 0 else shown


def _roofline_and_losses(report: Report, width: int, *, unicode: bool) -> list[Text]:
    """Plot and losses side by side where both fit, one under the other where they do not."""
    losses = _losses(report.ledgers)
    if not unicode or width < MIN_CHART_TERMINAL:
        return [Text(), *wrap_all([*roofline_table(report), *losses], width)]
    beside = width >= MIN_CHART_TERMINAL + 20
    chart_width = min(width - BESIDE_WIDTH if beside else width, MAX_CHART_WIDTH)
    chart = roofline_lines(report, chart_width)
    if beside and report.roof and report.points:
        return [Text(), *side_by_side(chart, losses, chart_width + 2)]
    return [Text(), *wrap_all([*chart, *losses], width)]


def _losses(ledgers: Iterable[Ledger]) -> list[Text]:
    """Op groups by the time that a kernel on its roof would give back."""
    lines: list[Text] = []
    for ledger in ledgers:
        above = sorted(
            (entry for entry in ledger.groups if entry.loss_s.point > 0),
            key=lambda entry: -entry.loss_s.point,
        )
        lines.append(Text(f"{ledger.phase.value}: time above the roofs", "bold"))
        lines += [_loss(entry, ledger) for entry in above[:LOSSES_PER_PHASE]]
        if not above:
            lines.append(Text(" none", "dim"))
    return lines


def _loss(entry: GroupEntry, ledger: Ledger) -> Text:
    share = units.percent(entry.loss_s.point / ledger.step_s.point)
    return Text(f" {entry.group.label:<18} {units.seconds(entry.loss_s.point):>7} {share:>6}")


def _caveats(caveats: tuple[Caveat, ...], width: int, room: int) -> list[Text]:
    """As many whole caveats as fit, then the codes of the others: none disappears."""
    limit = min(max(room, MIN_CAVEAT_LINES), MAX_CAVEAT_LINES)
    lines: list[Text] = []
    for index, caveat in enumerate(caveats):
        wrapped = wrap(_caveat(caveat), width)
        rest = caveats[index:]
        if len(lines) + len(wrapped) + (len(rest) > 1) > limit:
            codes = ", ".join(dict.fromkeys(one_line(other.code) for other in rest))
            return [*lines, *wrap(Text(f"! {len(rest)} more: {codes}", "yellow"), width)]
        lines += wrapped
    return lines


def _caveat(caveat: Caveat) -> Text:
    where = f"{caveat.phase.value}: " if caveat.phase else ""
    text = Text()
    text.append(f"! {where}{one_line(caveat.message)}", "yellow")
    return text.append(f" → {one_line(caveat.remedy)}") if caveat.remedy else text
