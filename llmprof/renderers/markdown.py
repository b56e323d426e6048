"""The pieces of GitHub-flavoured Markdown: tables, folded sections, text that stays text."""

from collections.abc import Sequence

from llmprof.renderers.tables import Table
from llmprof.renderers.wording import one_line

_SPECIAL = str.maketrans({char: f"\\{char}" for char in "\\`*_[]|#~"} | {"<": "&lt;", "&": "&amp;"})


def table_lines(table: Table) -> list[str]:
    """Header, alignment and rows; the caption is the caller's."""
    aligned = [
        ":--" if index == 0 or index in table.prose else "--:"
        for index in range(len(table.columns))
    ]
    rows = (table.columns, aligned, *(tuple(map(escaped, row)) for row in table.rows))
    return [f"| {' | '.join(row)} |" for row in rows]


def details(summary: str, lines: Sequence[str]) -> list[str]:
    return [f"<details><summary>{summary}</summary>", "", *lines, "", "</details>", ""]


def code(text: str) -> str:
    return f"`{one_line(text).replace('`', chr(39))}`"


def escaped(text: str) -> str:
    """Nothing in it means anything to Markdown."""
    return text.translate(_SPECIAL)
