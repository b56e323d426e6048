"""Ops of few rows that an engine runs inside another one's kernel: one launch, and less to move.

What a part moves beside its host becomes the host's; what one would only hand to the other stays in
registers. FLOPs and everything that must be read from memory stay as they are.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from llmprof.costs.options import CostOptions
from llmprof.errors import CapabilityError
from llmprof.schema.cost import OpCost, OpGroup
from llmprof.schema.layers import DenseMlp, LayerShape, SoftmaxAttention
from llmprof.schema.model import ModelConfig
from llmprof.schema.settings import ExecutionMode, ExecutionSettings, Fusion

FUSED_ROWS: Final = 16
"""Of activations, on a GPU: tensor cores take so many at once, and have no more to do for them than for
one. With more a library's product is the faster one, and kernels do more than starting them costs."""
FOR_GPUS: Final = "its kernels are made for GPUs"
"""What keeps a CPU from having them."""
BY_ITSELF: Final = "torch.compile fuses what lies between products by itself"
"""What keeps compiled steps on a GPU from having them."""
_DTYPES: Final = ("bf16", "fp16")
_OF_HEADS: Final = ("norm.query", "norm.key")
_NORMS_AROUND: Final = 4
"""Norms of a layer that has some behind its blocks too, or more: there is no product after those."""


@dataclass(frozen=True, slots=True)
class Part:
    """An op that becomes part of another one."""

    name: str
    host: str
    kept: float
    """Activations that the joint kernel moves beyond those of the host alone, over those of the part:
    negative where the host no longer writes what the part would read."""


def fused_rows_of(execution: ExecutionSettings, dtype: str, *, trouble: str | None) -> int:
    """`CostOptions.fused_rows` of steps that compute in `dtype`.

    `trouble`: why the device has no such kernels, as the end of a sentence; None where it has them.

    Raises:
        CapabilityError: `execution.fused=on` where that cannot be.
    """
    if trouble is None and execution.mode is ExecutionMode.COMPILED:
        trouble = BY_ITSELF
    if trouble is None and dtype not in _DTYPES:
        trouble = (
            f"several rows in {dtype}, which no tensor core takes whole, are bound by arithmetic"
        )
    if trouble is None:
        return 0 if execution.fused is Fusion.OFF else FUSED_ROWS
    if execution.fused is Fusion.ON:
        raise CapabilityError(
            f"execution.fused=on is not available: {trouble}",
            remedy="Set execution.fused=auto or off",
        )
    return 0


def runs_fused(rows: int, options: CostOptions) -> bool:
    """Whether a step of so many rows runs kernels that are several ops."""
    return 0 < rows <= options.fused_rows


def takes_in(group: OpGroup, model: ModelConfig, rows: int, options: CostOptions) -> bool:
    """Whether a kernel of `group`, with so many rows, does an op beside its own in some of the layers.

    Few rows are not enough: products with experts do not, nor do those between which and the addition
    lies a norm or a sum over devices.
    """
    if not runs_fused(rows, options):
        return False
    kinds = model.layer_kinds or model.layers[:1]
    parts = [part for kind in kinds for part in _parts(kind, kind.norms, 1.0, options)]
    return group.value in {part.host for part in (*parts, FINAL_NORM)}


def fused_layer(
    ops: Iterable[OpCost], layer: LayerShape, rotary_share: float, options: CostOptions
) -> list[OpCost]:
    """The ops of layers of one kind, in a step whose rows are few enough."""
    known = {op.name: op for op in ops}
    norms = [name for name in known if name.startswith("norm.") and name not in _OF_HEADS]
    return fused(known.values(), _parts(layer, norms, rotary_share, options))


def fused(ops: Iterable[OpCost], parts: Iterable[Part]) -> list[OpCost]:
    """With every part in its host; a part without a host stays an op."""
    found = {op.name: op for op in ops}
    for part in parts:
        if part.name in found and part.host in found:
            found[part.host] = _joined(found[part.host], found.pop(part.name), part.kept)
    return list(found.values())


FINAL_NORM = Part("norm.final", "lm_head", kept=0.0)
"""The product reads what the norm would read, instead of what it would write."""


def _joined(host: OpCost, part: OpCost, kept: float) -> OpCost:
    moved = part.traffic.model_copy(update={"activations": 0.0})
    total = host.traffic + moved
    activations = host.traffic.activations + kept * part.traffic.activations
    return host.model_copy(
        update={"traffic": total.model_copy(update={"activations": activations})}
    )


def _parts(
    layer: LayerShape, norms: Sequence[str], rotary_share: float, options: CostOptions
) -> Iterator[Part]:
    """Named as `layer.LayerCosts` names them; `norms` are those of the layer, in its order."""
    attention, mlp = layer.attention, layer.mlp
    if not isinstance(attention, SoftmaxAttention):
        return
    around = len(norms) >= _NORMS_AROUND
    alone = options.tensor_parallel == 1 and not around
    yield Part(norms[0], "qkv_projection", kept=0.0)
    yield from _turn_and_append(attention, rotary_share)
    if alone:
        yield Part("output_projection.residual", "output_projection", kept=1 / 3)
    if not (isinstance(mlp, DenseMlp) and mlp.gated):
        return
    yield Part(norms[2 if around else 1], "gate_up_projection", kept=0.0)
    # gate and up are neither written nor read: of 3 numbers for each inner one that the part moves
    # the one that it writes stays, and the host writes 2 fewer
    yield Part("activation", "gate_up_projection", kept=-1 / 3)
    if alone:
        yield Part("down_projection.residual", "down_projection", kept=1 / 3)


def _turn_and_append(shape: SoftmaxAttention, rotary_share: float) -> Iterator[Part]:
    """One kernel reads queries, keys and values, and writes queries and keys back.

    Beside keys and values, which an append reads anyway: queries twice and keys once, whole heads of
    which the rotation alone would move the share that turns.
    """
    queries, keys = shape.query_heads, shape.kv_heads
    turned = 2 * (queries + keys) * int(shape.key_dim * rotary_share)
    yield Part("norm.query", "kv_append", kept=0.0)
    yield Part("norm.key", "kv_append", kept=0.0)
    yield Part("rope", "kv_append", kept=(2 * queries + keys) * shape.key_dim / turned)
