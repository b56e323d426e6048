"""Every format that a sweep can be written in, by the suffix of the file's name."""

from collections.abc import Callable
from typing import Final

from llmprof.errors import InputError
from llmprof.renderers.sweep_words import (
    caveat_lines,
    choice_lines,
    headline,
    outcome_lines,
    sweep_stamps,
)
from llmprof.renderers.wording import one_line
from llmprof.schema.sweep import Sweep


def _html(sweep: Sweep) -> bytes:
    from llmprof.renderers.sweep_page import sweep_page

    return sweep_page(sweep)


def _markdown(sweep: Sweep) -> bytes:
    """Short enough for a pull request."""
    from llmprof.renderers.markdown import code, details, escaped, table_lines
    from llmprof.renderers.sweep_tables import bytes_table, cells_table, intervals_table

    lines = [f"### llmprof sweep: {escaped(one_line(sweep.model_name))}", ""]
    lines += [line for stamp in sweep_stamps(sweep) for line in (f"**{escaped(stamp)}**", "")]
    lines += [escaped(headline(sweep)), "", *table_lines(cells_table(sweep)), ""]
    lines += [f"- {escaped(line)}" for line in (*choice_lines(sweep), *outcome_lines(sweep))]
    lines += [f"- *Caveat.* {escaped(line)}" for line in caveat_lines(sweep)]
    lines.append("")
    for table in (intervals_table(sweep), bytes_table(sweep)):
        lines += details(escaped(table.caption), table_lines(table))
    where = f"on {escaped(one_line(sweep.device_name))}, llmprof {code(sweep.tool.version)}"
    lines += [f"Sweep {code(sweep.id)} {where}: {code(' '.join(sweep.tool.argv))}", ""]
    return "\n".join(lines).encode()


def _csv(sweep: Sweep) -> bytes:
    from llmprof.renderers.sweep_csv import sweep_csv

    return sweep_csv(sweep)


def _json(sweep: Sweep) -> bytes:
    return (sweep.model_dump_json(by_alias=True, indent=2) + "\n").encode()


def _figure(kind: str) -> Callable[[Sweep], bytes]:
    def draw(sweep: Sweep) -> bytes:
        from llmprof.renderers.sweep_figure import sweep_figure

        return sweep_figure(sweep, kind)

    return draw


RENDERERS: Final[dict[str, Callable[[Sweep], bytes]]] = {
    ".html": _html,
    ".md": _markdown,
    ".json": _json,
    ".csv": _csv,
    ".png": _figure("png"),
    ".svg": _figure("svg"),
    ".pdf": _figure("pdf"),
}


def check_sweep_suffix(suffix: str) -> None:
    """Make sure that a file with this suffix can be rendered, before anything is measured.

    Raises:
        InputError: no renderer has this suffix.
    """
    if suffix.lower() not in RENDERERS:
        raise InputError(
            f"no sweep format for a name that ends in {suffix!r}",
            remedy=f"Known suffixes: {' '.join(RENDERERS)}",
        )


def render_sweep(sweep: Sweep, suffix: str) -> bytes:
    """The sweep in the format of `suffix` (".html", ".png", ...); same sweep, same bytes."""
    check_sweep_suffix(suffix)
    return RENDERERS[suffix.lower()](sweep)
