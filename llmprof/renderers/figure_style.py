"""How the figures look, and how they become bytes that are the same every time.

Phases and parts take their colours from the palette of Okabe and Ito (Color Universal Design, 2008),
and a shape or a hatch beside it, so that nothing is told by colour alone.
"""

import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from llmprof.schema.cost import Phase
from llmprof.schema.ledger import Part

if TYPE_CHECKING:
    from matplotlib.figure import Figure

INK = "#1c2128"
MUTED = "#59636e"
GRID = "#e1e4e8"
SURFACE = "#fefefe"
BAND = "#c9ced6"
"""Each colour is used for one purpose, so that a page can exchange it for one of its theme."""

PHASE_COLORS = {Phase.PREFILL: "#0072b2", Phase.DECODE: "#d55e00", Phase.MIXED: "#cc79a7"}
PHASE_MARKERS = {Phase.PREFILL: "o", Phase.DECODE: "D", Phase.MIXED: "s"}
CEILING_COLORS = {
    "read": ("#3a6ea5", "^"),
    "matmul": ("#2f8f6f", "v"),
    "skinny matmul": ("#8c8c8c", "<"),
}
"""Colour and shape of a live ceiling's readings."""

PART_COLORS: dict[Part, str] = {
    Part.MEMORY_WEIGHTS: "#56b4e9",
    Part.MEMORY_KV: "#9ad1f2",
    Part.MEMORY_OTHER: "#cfe8f8",
    Part.COMPUTE: "#33b28c",
    Part.FIXED_COST: "#bdbdbd",
    Part.LOSS: "#e69f00",
    Part.GAPS: "#e8e8e8",
    Part.COMMUNICATION: "#f0e442",
    Part.HOST: "#cfa2c0",
}
PART_HATCHES: dict[Part, str] = {
    Part.MEMORY_KV: "|||",
    Part.MEMORY_OTHER: "++",
    Part.LOSS: "\\\\\\",
    Part.COMMUNICATION: "xx",
    Part.HOST: "---",
}
ON_PART = "#111418"
"""Text on the colour of a part: they are light in every theme."""

_SETTINGS: dict[Any, Any] = {
    "font.family": ["DejaVu Sans"],  # comes with matplotlib: the same layout on every machine
    "font.size": 9,
    "svg.fonttype": "none",
    "svg.hashsalt": "llmprof",
    "pdf.fonttype": 42,
    "hatch.linewidth": 0.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "axes.facecolor": "none",
    "figure.facecolor": SURFACE,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "text.color": INK,
    "text.parse_math": False,  # a model's name may hold dollar signs
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.minor.visible": False,
    "ytick.minor.visible": False,
}
_NO_METADATA: dict[str, dict[str, str | None]] = {
    "svg": dict.fromkeys(("Date", "Creator", "Format", "Type")),
    "pdf": dict.fromkeys(("CreationDate", "Creator", "Producer")),
    "png": {"Software": None},
}


@contextmanager
def styled() -> Iterator[None]:
    """Draw and save within this block; the settings of the process are as before after it."""
    import matplotlib as mpl

    with mpl.rc_context(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        mpl.rcdefaults()
        mpl.rcParams.update(_SETTINGS)
        yield


def figure_bytes(figure: "Figure", kind: str) -> bytes:
    """The figure as `svg`, `pdf` or `png`, without a date or a version in it."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format=kind, dpi=200, metadata=_NO_METADATA[kind])
    return buffer.getvalue()
