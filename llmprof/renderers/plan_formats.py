"""Every format that a plan can be written in, by the suffix of the file's name."""

from collections.abc import Callable
from typing import Final

from llmprof.errors import InputError
from llmprof.schema.plan import Plan


def _html(plan: Plan) -> bytes:
    from llmprof.renderers.plan_page import plan_page

    return plan_page(plan)


def _markdown(plan: Plan) -> bytes:
    from llmprof.renderers.markdown import code, escaped, table_lines
    from llmprof.renderers.plan_tables import impossible_lines, tables
    from llmprof.renderers.plan_words import asked_line, headline, memory_line, title
    from llmprof.renderers.verification_words import verification_lines

    lines = [f"### llmprof plan: {escaped(title(plan))}", "", escaped(headline(plan)), ""]
    facts = (memory_line(plan), plan.capacity_formula, plan.kv_formula, plan.context_formula)
    asked = (asked_line(plan, point) for point in plan.asked)
    lines += [f"- {escaped(text)}" for text in (*asked, *facts, *verification_lines(plan))]
    for table in tables(plan):
        lines += ["", f"**{escaped(table.caption)}**", "", *table_lines(table)]
    lines.append("")
    lines += [f"- *Assumed.* {escaped(text)}" for text in plan.assumptions]
    lines += [f"- {escaped(text)}" for text in impossible_lines(plan)]
    lines += [f"- *Caveat.* {escaped(caveat.message)}" for caveat in plan.caveats]
    lines += ["", f"llmprof {code(plan.tool.version)}: {code(' '.join(plan.tool.argv))}", ""]
    return "\n".join(lines).encode()


def _json(plan: Plan) -> bytes:
    return (plan.model_dump_json(by_alias=True, indent=2) + "\n").encode()


def _figure(kind: str) -> Callable[[Plan], bytes]:
    def draw(plan: Plan) -> bytes:
        from llmprof.renderers.plan_figure import plan_figure

        return plan_figure(plan, kind)

    return draw


RENDERERS: Final[dict[str, Callable[[Plan], bytes]]] = {
    ".html": _html,
    ".md": _markdown,
    ".json": _json,
    ".png": _figure("png"),
    ".svg": _figure("svg"),
    ".pdf": _figure("pdf"),
}


def check_plan_suffix(suffix: str) -> None:
    """Make sure that a file with this suffix can be rendered.

    Raises:
        InputError: no renderer has this suffix.
    """
    if suffix.lower() not in RENDERERS:
        raise InputError(
            f"no plan format for a name that ends in {suffix!r}",
            remedy=f"Known suffixes: {' '.join(RENDERERS)}",
        )


def render_plan(plan: Plan, suffix: str) -> bytes:
    """The plan in the format of `suffix` (".html", ".png", ...); same plan, same bytes."""
    check_plan_suffix(suffix)
    return RENDERERS[suffix.lower()](plan)
