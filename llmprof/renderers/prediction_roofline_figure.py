"""Where each step stands on the roofline before and after a switch, and an arrow between the two."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from llmprof import units
from llmprof.renderers.figure_style import (
    INK,
    MUTED,
    PHASE_COLORS,
    PHASE_MARKERS,
    SURFACE,
    figure_bytes,
    styled,
)
from llmprof.renderers.log_window import LogWindow
from llmprof.renderers.roofline_figure import empty_plot, prepare_axes
from llmprof.renderers.wording import one_line
from llmprof.schema.cost import Phase
from llmprof.schema.prediction import PhasePrediction, Prediction, StepPlace

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_RIGHT_EDGE: Final = 0.6
"""From here on a label has no room beside its mark."""
HOW_TO_READ: Final = (
    "Hollow: before; filled: predicted, with the interval of its step as a bar. Lines: the "
    "ceilings of the device, dashed where they were those of the base only."
)


class _Mark(NamedTuple):
    place: StepPlace
    step_s: float

    @property
    def intensity(self) -> float:
        return self.place.flops / self.place.bytes_required

    @property
    def flops_per_s(self) -> float:
        return self.place.flops / self.step_s


def prediction_roofline_figure(prediction: Prediction, kind: str) -> bytes:
    """Bytes of an `svg`, `pdf` or `png`; equal for equal predictions."""
    placed = [phase for phase in prediction.phases if _after(phase)]
    with styled():
        figure, axes = empty_plot()
        window = _window(placed)
        prepare_axes(axes, window)
        for index, (place, dashed) in enumerate(_roofs(placed)):
            _draw_roof(axes, place, dashed=dashed, labelled=not index)
        for phase in placed:
            _draw_phase(axes, phase, window)
        if not placed:
            missing = "no phase could be placed"
            axes.text(0.5, 0.5, missing, transform=axes.transAxes, ha="center", color=MUTED)
        return figure_bytes(figure, kind)


def _after(phase: PhasePrediction) -> _Mark | None:
    """None for a step without FLOPs, which has no place on logarithmic axes."""
    place = phase.place
    return _Mark(place, phase.step_s.point) if place and place.flops else None


def _before(phase: PhasePrediction) -> _Mark | None:
    place, base = phase.base_place, phase.base_step_s
    return _Mark(place, base.point) if place and base and place.flops else None


def _marks(phases: Sequence[PhasePrediction]) -> list[_Mark]:
    return [mark for phase in phases for mark in (_before(phase), _after(phase)) if mark]


def _window(phases: Sequence[PhasePrediction]) -> LogWindow:
    marks = _marks(phases)
    ridges = [one.place.matmul_flops_per_s / one.place.read_bytes_per_s for one in marks]
    across = [*(one.intensity for one in marks), *(ridge / 4 for ridge in ridges)]
    across += [ridge * 4 for ridge in ridges]
    up = [one.flops_per_s for one in marks]
    up += [one.place.matmul_flops_per_s for one in marks]
    up += [one.place.matmul_flops_per_s / 30 for one in marks]
    return LogWindow(
        low_intensity=min(across, default=0.1) / 2,
        high_intensity=max(across, default=100.0) * 2,
        low_flops_per_s=min(up, default=1e9) / 2.5,
        high_flops_per_s=max(up, default=1e12) * 1.8,
    )


def _roofs(phases: Sequence[PhasePrediction]) -> list[tuple[StepPlace, bool]]:
    """Each pair of ceilings once: those of the target, then those that only the base had."""
    found: dict[tuple[float, float], tuple[StepPlace, bool]] = {}
    for dashed, places in (
        (False, [phase.place for phase in phases]),
        (True, [phase.base_place for phase in phases]),
    ):
        for place in filter(None, places):
            key = (place.read_bytes_per_s, place.matmul_flops_per_s)
            found.setdefault(key, (place, dashed))
    return list(found.values())


def _draw_roof(axes: "Axes", place: StepPlace, *, dashed: bool, labelled: bool) -> None:
    """Phases whose rounds had other readings have lines of their own, and one label is enough."""
    read, matmul = place.read_bytes_per_s, place.matmul_flops_per_s
    low, high = axes.get_xlim()
    xs = [low, min(max(matmul / read, low), high), high]
    color = MUTED if dashed else INK
    axes.plot(
        xs,
        [min(matmul, read * x) for x in xs],
        color=color,
        linewidth=1.0 if dashed else 1.8,
        linestyle="--" if dashed else "-",
    )
    if labelled:
        label = (
            f"{one_line(place.matmul_dtype)} {units.flops_per_s(matmul)}, "
            f"read {units.bytes_per_s(read)}"
        )
        axes.text(high / 1.1, matmul * 1.1, label, ha="right", size=8, color=color)


def _draw_phase(axes: "Axes", phase: PhasePrediction, window: LogWindow) -> None:
    before, after = _before(phase), _after(phase)
    assert after is not None, "only placed phases are drawn"
    color, flops = PHASE_COLORS[phase.phase], after.place.flops
    bar = [flops / max(one, 1e-12) for one in (phase.step_s.high, phase.step_s.low)]
    axes.plot([after.intensity] * 2, bar, color=color, linewidth=1.4)
    _draw_mark(axes, phase.phase, after, hollow=False)
    label = f"{phase.phase.value}, {units.flops_per_s(after.flops_per_s)}"
    to_the_right = window.across(after.intensity) < _RIGHT_EDGE
    axes.annotate(
        label,
        (after.intensity, after.flops_per_s),
        textcoords="offset points",
        xytext=(9 if to_the_right else -9, -13),
        ha="left" if to_the_right else "right",
        color=color,
        size=8,
        weight="bold",
    )
    if before is not None:
        _draw_mark(axes, phase.phase, before, hollow=True)
        axes.annotate(
            "",
            (after.intensity, after.flops_per_s),
            (before.intensity, before.flops_per_s),
            arrowprops={"arrowstyle": "->", "color": color, "shrinkA": 4, "shrinkB": 4},
            zorder=6,
        )


def _draw_mark(axes: "Axes", phase: Phase, mark: _Mark, *, hollow: bool) -> None:
    color = PHASE_COLORS[phase]
    axes.plot(
        [mark.intensity],
        [mark.flops_per_s],
        marker=PHASE_MARKERS[phase],
        markersize=7,
        markerfacecolor=SURFACE if hollow else color,
        markeredgecolor=color,
        linestyle="none",
        zorder=4 if hollow else 5,
    )
