"""Which experts the tokens of a step pass, and how many different ones that were."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

import torch

from llmprof.engine.step_batch import StepBatch
from llmprof.errors import InputError
from llmprof.schema.cost import ExpertsRead
from llmprof.schema.layers import ExpertMlp
from llmprof.schema.model import ModelConfig
from llmprof.schema.settings import RoutingKind, RoutingSettings

_TABLE_ROWS: Final = 8191
"""Choices that are drawn once for each layer; a prime, so that the multipliers reach all of them."""
_ID, _POSITION = 7919, 104_730
"""What a token's place in the table follows from: the same token at the same position of any round
chooses the same experts, so that rounds are alike."""


class ExpertChoice(Protocol):
    def begin_step(self, step: StepBatch) -> None:
        """Prepare what all layers of a step share."""

    def __call__(self, shares: torch.Tensor, per_token: int, layer: int) -> torch.Tensor:
        """Ids [rows, per_token] int64 from a router's probabilities [rows, experts]."""


class RouterChoice:
    """The most probable ones, as the model was trained."""

    def begin_step(self, step: StepBatch) -> None:
        pass

    def __call__(self, shares: torch.Tensor, per_token: int, layer: int) -> torch.Tensor:
        return shares.topk(per_token, dim=-1).indices


class TableChoice:
    """From a table for each layer, for routers that were never trained."""

    def __init__(self, tables: dict[int, torch.Tensor]) -> None:
        """From layer -> ids [table rows, per_token] int64, on the model's device."""
        self._tables = tables
        self._places: torch.Tensor | None = None

    def begin_step(self, step: StepBatch) -> None:
        self._places = step.ids * _ID + step.positions * _POSITION

    def __call__(self, shares: torch.Tensor, per_token: int, layer: int) -> torch.Tensor:
        assert self._places is not None, "a step begins before its layers"
        table = self._tables[layer]
        return table.index_select(0, self._places % len(table))


@dataclass(slots=True)
class RoutedExperts:
    """Different experts that a layer read in a step, by the tokens of the step, in the last round."""

    _calls: dict[int, int] = field(default_factory=dict)
    _experts: dict[int, int] = field(default_factory=dict)

    def add(self, tokens: int, experts: int) -> None:
        self._calls[tokens] = self._calls.get(tokens, 0) + 1
        self._experts[tokens] = self._experts.get(tokens, 0) + experts

    def clear(self) -> None:
        """A round begins."""
        self._calls.clear()
        self._experts.clear()

    def means(self) -> tuple[ExpertsRead, ...]:
        return tuple(
            ExpertsRead(tokens=tokens, experts=self._experts[tokens] / calls)
            for tokens, calls in sorted(self._calls.items())
        )


def make_choice(model: ModelConfig, settings: RoutingSettings, device: str) -> ExpertChoice:
    """How tokens choose, by `routing.kind`.

    Raises:
        InputError: a recorded routing that cannot be read, or that is of another model.
    """
    shapes = {
        index: layer.mlp
        for index, layer in enumerate(model.layers)
        if isinstance(layer.mlp, ExpertMlp)
    }
    match settings.kind:
        case RoutingKind.ROUTER:
            return RouterChoice()
        case RoutingKind.RECORDED:
            return TableChoice(_recorded(shapes, Path(settings.file or ""), device))
        case RoutingKind.UNIFORM | RoutingKind.ZIPF:
            zipf = settings.kind is RoutingKind.ZIPF
            exponent = settings.zipf_exponent if zipf else 0.0
            return TableChoice(
                {
                    index: _drawn(shape, exponent, index).to(device)
                    for index, shape in shapes.items()
                }
            )


def _drawn(shape: ExpertMlp, exponent: float, layer: int) -> torch.Tensor:
    """Sets of experts without repetition, the r-th most popular with weight 1 / r^exponent.

    Drawn one after the other by these weights: the largest of log weight + Gumbel noise (Vieira
    2014). Which expert is popular differs by layer.
    """
    generator = torch.Generator().manual_seed(layer)
    ranks = torch.randperm(shape.num_experts, generator=generator) + 1.0
    uniform = torch.rand(_TABLE_ROWS, shape.num_experts, generator=generator, dtype=torch.float64)
    noise = -(-uniform.clamp_(min=1e-300).log()).log()
    return (noise - exponent * ranks.log()).topk(shape.experts_per_token, dim=-1).indices


def _recorded(shapes: dict[int, ExpertMlp], path: Path, device: str) -> dict[int, torch.Tensor]:
    """JSON lines, one for each token: for each layer with experts the list of those it chose."""
    try:
        lines = [json.loads(line) for line in path.read_text().splitlines() if line.strip()]
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read the routing in {path}: {error}") from error
    if not lines:
        raise InputError(f"{path} holds no routing", remedy="Write one JSON list for each token")
    for number, line in enumerate(lines, start=1):
        _check_line(line, tuple(shapes.values()), f"{path}, line {number}")
    return {
        index: torch.tensor([line[nth] for line in lines], dtype=torch.int64, device=device)
        for nth, index in enumerate(shapes)
    }


def _check_line(line: object, shapes: Sequence[ExpertMlp], where: str) -> None:
    if not isinstance(line, list) or len(line) != len(shapes):
        raise InputError(f"{where}: expected a list for each of the {len(shapes)} expert layers")
    for ids, shape in zip(line, shapes, strict=True):
        if not _fits(ids, shape):
            raise InputError(
                f"{where}: expected {shape.experts_per_token} different experts from 0 to "
                f"{shape.num_experts - 1} for each layer"
            )


def _fits(ids: object, shape: ExpertMlp) -> bool:
    return (
        isinstance(ids, list)
        and all(type(one) is int and 0 <= one < shape.num_experts for one in ids)
        and len(set(ids)) == len(ids) == shape.experts_per_token
    )
