"""A matplotlib SVG made part of a page: themed, titled, free of ids that another figure uses."""

import re
from collections.abc import Mapping
from html import escape

from llmprof.renderers.figure_style import BAND, GRID, INK, MUTED, PHASE_COLORS, SURFACE

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
_GLOBAL_STYLE = re.compile(r"<style.*?</style>", re.DOTALL)
_SIZE = re.compile(r' (?:width|height)="[^"]*"')


def inline_svg(
    data: bytes,
    *,
    name: str,
    title: str,
    description: str,
    tooltips: Mapping[str, str] | None = None,
) -> str:
    """`data` as an `<svg>` element that scales with its column, safe to put into HTML.

    `name` is unique on the page and prefixes every id, but for the gids (`point-...`). `tooltips`
    has a text for each gid. A reader without eyes hears title and description.
    """
    text = data.decode()
    text = _GLOBAL_STYLE.sub("", text[text.index("<svg") :])
    text = _ID.sub(lambda match: f'id="{_own_id(name, match[1])}"', text)
    text = _REFERENCE.sub(lambda match: match[1] + _own_id(name, match[2]), text)
    for color, variable in THEMED.items():
        text = text.replace(color, f"var({variable})")
    for gid, tooltip in (tooltips or {}).items():
        group = f'<g id="{gid}">'
        text = text.replace(group, f"{group}<title>{escape(tooltip)}</title>")
    opening, rest = text.split(">", 1)
    labels = f'role="img" aria-labelledby="{name}-title {name}-desc"'
    spoken = (
        f'<title id="{name}-title">{escape(title)}</title>'
        f'<desc id="{name}-desc">{escape(description)}</desc>'
    )
    return f"{_SIZE.sub('', opening)} {labels}>{spoken}{rest}"


def _own_id(name: str, identifier: str) -> str:
    return identifier if identifier.startswith("point-") else f"{name}-{identifier}"
