"""A matplotlib SVG made part of a page: themed, titled, free of ids that another figure uses."""

import re
from collections.abc import Mapping
from html import escape

from llmprof.renderers.figure_style import BAND, GRID, INK, MUTED, PHASE_COLORS, SURFACE
from llmprof.renderers.marks import parse_gid

THEMED: Mapping[str, str] = {
    INK: "--ink",
    MUTED: "--muted",
    GRID: "--grid",
    SURFACE: "--card",
    BAND: "--band",
    **{color: f"--{phase.value}" for phase, color in PHASE_COLORS.items()},
}
"""Colours that follow the page's theme, by the CSS variable that replaces them."""

_ID = re.compile(r'\bid="([^"]+)"')
_REFERENCE = re.compile(r'(url\(#|href="#)([^")]+)')
_MARK = re.compile(r'<g id="([^"]+)"[^>]*>')
_GLOBAL_STYLE = re.compile(r"<style.*?</style>", re.DOTALL)
_SIZE = re.compile(r' (?:width|height)="[^"]*"')
_WIDTH_PT = re.compile(r' width="([\d.]+)pt"')
_LEGIBLE_PX_PER_PT = 1.25
"""The smallest letters of the figures have 6.5 pt."""


def inline_svg(
    data: bytes,
    *,
    name: str,
    title: str,
    description: str,
    tooltips: Mapping[str, str] | None = None,
) -> str:
    """`data` as an `<svg>` element that scales with its column, safe to put into HTML.

    Its least width at which its letters can be read is the CSS variable `--legible`.
    `name` is unique on the page and prefixes every id, but for the keys of marks, which become
    ids as they are, and their layers a `data-layer`. `tooltips` has a text by key. A reader without
    eyes hears title and description.
    """
    text = data.decode()
    text = _GLOBAL_STYLE.sub("", text[text.index("<svg") :])
    text = _ID.sub(lambda match: _identity(name, match[1]), text)
    text = _REFERENCE.sub(lambda match: match[1] + _own_id(name, match[2]), text)
    for color, variable in THEMED.items():
        text = text.replace(color, f"var({variable})")
    text = _MARK.sub(lambda match: match[0] + _title((tooltips or {}).get(match[1])), text)
    opening, rest = text.split(">", 1)
    width = _WIDTH_PT.search(opening)
    least = f' style="--legible: {float(width[1]) * _LEGIBLE_PX_PER_PT:.0f}px"' if width else ""
    labels = f'role="img" aria-labelledby="{name}-title {name}-desc"'
    spoken = (
        f'<title id="{name}-title">{escape(title)}</title>'
        f'<desc id="{name}-desc">{escape(description)}</desc>'
    )
    return f"{_SIZE.sub('', opening)}{least} {labels}>{spoken}{rest}"


def _identity(name: str, identifier: str) -> str:
    mark = parse_gid(identifier)
    if mark is None:
        return f'id="{_own_id(name, identifier)}"'
    layer, key = mark
    return f'id="{key}" data-layer="{layer}"' if layer else f'id="{key}"'


def _own_id(name: str, identifier: str) -> str:
    return f"{name}-{identifier}"


def _title(tooltip: str | None) -> str:
    return f"<title>{escape(tooltip)}</title>" if tooltip else ""
