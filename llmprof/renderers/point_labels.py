"""Names beside the points of a panel, where they cross neither one another nor what is drawn."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

from llmprof.renderers.figure_style import MUTED

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SIZE_PT: Final = 6.5
_HIGH_PT: Final = 8.0
_LETTER_PT: Final = 0.62 * _SIZE_PT
"""Width of a wide letter or digit; a narrow one leaves room."""
_FAR_PT: Final = (4.0, 12.0, 22.0)
"""From a point to its name, nearest first; one that lies further has a thin line to its point."""
_SIDES: Final = ((1, 0), (1, 1), (1, -1), (-1, 0), (-1, 1), (-1, -1), (0, 1), (0, -1))
"""Right is best, then up and to the right, ..."""
_SAMPLE_PT: Final = 4.0


class NamedPoint(NamedTuple):
    name: str
    x: float
    y: float


class _Spot(NamedTuple):
    """In points, from the panel's lower left corner."""

    x: float
    y: float


class _Box(NamedTuple):
    """Where a name stands."""

    left: float
    bottom: float
    width: float
    far: float

    def crosses(self, other: "_Box") -> bool:
        return (
            abs(self.bottom - other.bottom) < _HIGH_PT
            and self.left < other.left + other.width
            and other.left < self.left + self.width
        )

    def covers(self, spot: _Spot) -> bool:
        inside = self.left <= spot.x <= self.left + self.width
        return inside and self.bottom <= spot.y <= self.bottom + _HIGH_PT


def name_points(
    panel: "Axes",
    lines: Sequence[Sequence[NamedPoint]],
    *,
    connected: bool,
    width_pt: float,
    height_pt: float,
) -> None:
    """The limits of the panel must be set already; `width_pt` and `height_pt` are about its size."""
    (left, right), (bottom, top) = panel.get_xlim(), panel.get_ylim()

    def spot(point: NamedPoint) -> _Spot:
        across, up = (point.x - left) / (right - left), (point.y - bottom) / (top - bottom)
        return _Spot(width_pt * across, height_pt * up)

    drawn = [one for line in lines for one in _drawn([spot(point) for point in line], connected)]
    placed: list[_Box] = []
    for point in (point for line in lines for point in line):
        own = spot(point)
        box = _free_box(point.name, own, drawn, placed, height_pt)
        panel.annotate(
            point.name,
            (point.x, point.y),
            textcoords="offset points",
            xytext=(box.left - own.x, box.bottom + _HIGH_PT / 2 - own.y),
            va="center",
            size=_SIZE_PT,
            color=MUTED,
            arrowprops=_TO_POINT if box.far > _FAR_PT[0] else None,
        )
        placed.append(box)


_TO_POINT: Final = {"arrowstyle": "-", "color": MUTED, "linewidth": 0.4, "shrinkA": 0, "shrinkB": 0}


def _drawn(spots: Sequence[_Spot], connected: bool) -> Iterator[_Spot]:
    """The marks, and what connects them."""
    yield from spots
    for one, other in pairwise(spots if connected else ()):
        across, up = other.x - one.x, other.y - one.y
        steps = int((across**2 + up**2) ** 0.5 / _SAMPLE_PT) + 1
        for step in range(1, steps):
            yield _Spot(one.x + across * step / steps, one.y + up * step / steps)


def _free_box(
    name: str, own: _Spot, drawn: Sequence[_Spot], placed: Sequence[_Box], height_pt: float
) -> _Box:
    """The first that is free of all; else the first that is free of other names, or below them all."""
    boxes = [box for box in _boxes(name, own) if 0 <= box.bottom <= height_pt - _HIGH_PT / 2]
    apart = [box for box in boxes if not any(box.crosses(other) for other in placed)]
    free = [box for box in apart if not any(box.covers(spot) for spot in drawn)]
    below = _Box(own.x, min(one.bottom for one in placed) - _HIGH_PT if placed else own.y, 0, 99)
    return (free or apart or [below])[0]


def _boxes(name: str, own: _Spot) -> Iterator[_Box]:
    width = _LETTER_PT * len(name)
    for far in _FAR_PT:
        for across, up in _SIDES:
            left = own.x + across * far - (width * (1 - across) / 2)
            yield _Box(left, own.y + up * far - _HIGH_PT / 2 * (1 - up), width, far)
