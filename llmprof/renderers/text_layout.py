"""Lines of styled text: wrapped, set in a row, set side by side."""

import io
from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.text import Text

_INDENT = 2
_GAP = 2
_MEASURE = Console(file=io.StringIO(), width=80)
"""`Text.wrap` asks a console for its tab size; nothing is written to this one."""


def wrap(text: Text, width: int) -> list[Text]:
    """Lines of at most `width` cells, all but the first indented."""
    if text.cell_len <= width:
        return [text]
    first, *rest = text.wrap(_MEASURE, width - _INDENT)
    return [first, *(Text(" " * _INDENT) + line for line in rest)]


def wrap_all(lines: Iterable[Text], width: int) -> list[Text]:
    return [part for line in lines for part in wrap(line, width)]


def flow(entries: Sequence[Text], width: int) -> list[Text]:
    """Entries one after the other, broken between entries; only one that is too long is wrapped."""
    lines: list[Text] = []
    for entry in entries:
        if lines and lines[-1].cell_len + _GAP + entry.cell_len <= width:
            lines[-1] = lines[-1] + Text(" " * _GAP) + entry
        else:
            lines.append(Text(" " * _INDENT) + entry)
    return wrap_all(lines, width)


def side_by_side(left: Sequence[Text], right: Sequence[Text], column: int) -> list[Text]:
    """`right` starts at `column`, which `left` does not reach."""
    lines: list[Text] = []
    for index in range(max(len(left), len(right))):
        line = left[index].copy() if index < len(left) else Text()
        if index < len(right):
            line.pad_right(column - line.cell_len)
            line = line + right[index]
        lines.append(line)
    return lines
