"""What really ran: kernels, dtypes and bytes of an engine, for the run file."""

from collections.abc import Iterable, Sequence

from llmprof.costs.options import CostOptions, options_from
from llmprof.costs.step import step_cost
from llmprof.engine import activation, norm, residual, rope
from llmprof.engine.engine import Engine
from llmprof.engine.feed_forward import DenseFeedForward
from llmprof.engine.kv_cache import KvCache, KvPool
from llmprof.engine.model import Decoder
from llmprof.engine.normed_product import GATED_KERNEL, NORMED_KERNEL
from llmprof.engine.weights_checksum import weights_checksum
from llmprof.engine.workload import CeilingNeeds
from llmprof.schema.cost import ExpertsRead, Phase, StepShape
from llmprof.schema.run import EngineDescription
from llmprof.schema.settings import KvLayout, RunConfig


def cost_options(engine: Engine, config: RunConfig) -> CostOptions:
    """How `costs` has to count this engine's steps."""
    return options_from(
        config,
        compute_dtype=engine.dtype.name,
        kv_dtype=engine.kv_dtype,
        head_dim=engine.model.head_dim,
        kv_access=engine.kv_access,
        packed_rows=packed_rows(engine),
        fp8_arithmetic=fp8_arithmetic(engine),
        fused_rows=engine.decoder.fused_rows,
        experts_read=experts_read(engine),
        row_buckets=engine.runner.row_buckets,
        tensor_parallel=config.parallel.tensor,
    )


def experts_read(engine: Engine) -> tuple[ExpertsRead, ...]:
    """Different experts per layer that the steps of the last round read, by the tokens of a step."""
    return engine.routed.means()


def packed_rows(engine: Engine) -> int | None:
    """Rows up to which packed weights are read as they are; None where weights are floats."""
    projection = engine.decoder.layers[0].qkv
    return projection.few_rows if projection.format.packed else None


def compile_s(engine: Engine) -> float:
    """What compiling the decode steps took; 0 where nothing is compiled."""
    compilations = engine.runner.compilations
    return 0.0 if compilations is None else compilations.seconds


def fp8_arithmetic(engine: Engine) -> bool:
    """Whether products of many rows are done in fp8."""
    return any(layer.qkv.fp8_arithmetic for layer in engine.decoder.layers)


def describe_engine(
    engine: Engine,
    shapes: Iterable[StepShape],
    *,
    sampling_kernel: str,
    cache: KvCache,
    kv_bytes_used: int,
    waits_for_tokens: bool,
) -> EngineDescription:
    """Kernels by role for the steps that ran; how full the cache was the workload knows.

    `waits_for_tokens`: the host has each step's tokens before the next one starts.
    """
    synchronous = waits_for_tokens or engine.device == "cpu"
    chosen = engine.cache_kernels
    return EngineDescription(
        name="llmprof reference engine",
        kernels={**_kernels(engine, tuple(shapes), cache), "sampling": sampling_kernel},
        compute_dtype=engine.dtype.name,
        kv_dtype=engine.kv_dtype,
        kv_bytes_reserved=cache.bytes_reserved,
        kv_bytes_used=kv_bytes_used,
        weight_bytes=engine.manifest.stored_bytes,
        weights_checksum=_weights_checksum(engine),
        threads=engine.threads,
        random_weights=engine.random_weights,
        kv_access=engine.kv_access,
        kv_bytes_per_token=engine.kv_bytes_per_token,
        packed_rows=packed_rows(engine),
        fp8_arithmetic=fp8_arithmetic(engine),
        fused_rows=engine.decoder.fused_rows,
        experts_read=experts_read(engine),
        row_buckets=engine.runner.row_buckets,
        compiled_steps=engine.num_compiled,
        compile_s=compile_s(engine),
        attention_backend=None if chosen is None else chosen.backend,
        attention_fallback=None if chosen is None else chosen.fallback,
        regime="synchronous" if synchronous else "run_ahead",
    )


def _weights_checksum(engine: Engine) -> str | None:
    """None after an error that has left the device without an answer, and of no weights at all."""
    try:
        return weights_checksum(engine.allocated) if engine.allocated else None
    except RuntimeError:
        return None


def _kernels(engine: Engine, shapes: Sequence[StepShape], cache: KvCache) -> dict[str, str]:
    """One entry per role; projections of prefill and decode may differ, by their rows."""
    kernels = {}
    decoder = engine.decoder
    for shape in shapes:
        kernels[f"projections.{shape.phase.value}"] = _product(decoder, shape.new_tokens)
        if shape.logit_rows:
            kernels["lm_head"] = _product(decoder, shape.logit_rows, head=True)
        if shape.new_tokens <= decoder.fused_rows and isinstance(cache, KvPool) and cache.turns:
            kernels[f"kv_append.{shape.phase.value}"] = cache.turn_kernel
    kernels |= _residual(engine, shapes)
    attention = engine.decoder.attention
    kernels["attention"] = attention.kernel
    if isinstance(cache, KvPool):
        kernels["kv_append"] = cache.append_kernel
    of_cache = {
        "attention.decode": attention.step_kernel or attention.decode_kernel,
        "attention.chunk": attention.step_kernel or attention.chunk_kernel,
    }
    if isinstance(cache, KvPool):
        kernels |= {role: kernel.name for role, kernel in of_cache.items() if kernel is not None}
    kernels |= _prefill_attention(engine, shapes)
    kernels["execution"] = engine.runner.name
    if _runs_op_by_op(engine, shapes, cache):
        kernels["norm"] = norm.kernel_name(engine.device, engine.model.norm_gain_offset)
        kernels["rope"] = rope.kernel_name(engine.device)
        kernels["activation"] = activation.kernel_name(engine.device, engine.model.activation)
    ranks = engine.decoder.ranks
    if ranks is not None:
        kernels["communication"] = f"torch.distributed over {ranks.size} ranks, {ranks.backend}"
    return kernels


def _runs_op_by_op(engine: Engine, shapes: Sequence[StepShape], cache: KvCache) -> bool:
    """Whether any step had kernels for what lies between its products, not all being part of others."""
    decoder, shapes = engine.decoder, _of_the_engine(engine, shapes)
    if not shapes:
        return False
    dense = isinstance(decoder.layers[0].feed_forward, DenseFeedForward)
    around = decoder.layers[0].norm_after_attention is not None
    if not (dense and cache.turns) or around:
        return True
    return any(shape.new_tokens > decoder.fused_rows for shape in shapes)


def _of_the_engine(engine: Engine, shapes: Sequence[StepShape]) -> list[StepShape]:
    """Steps whose ops between the products are kernels that the engine chose.

    Those of compiled steps are made by torch.compile, as the role `execution` says.
    """
    compiled = engine.runner.compilations is not None
    return [shape for shape in shapes if not (compiled and shape.phase is Phase.DECODE)]


def _product(decoder: Decoder, rows: int, *, head: bool = False) -> str:
    """The kernel of a product of so many rows; of a layer's, norm and gate included where they are."""
    projection = decoder.head if head else decoder.layers[0].qkv
    if rows > decoder.fused_rows:
        return projection.kernel_name(rows)
    gated = not head and isinstance(decoder.layers[0].feed_forward, DenseFeedForward)
    ops = f"{NORMED_KERNEL}, {GATED_KERNEL}" if gated else NORMED_KERNEL
    return f"{ops} on {projection.format.name}"


def _residual(engine: Engine, shapes: Sequence[StepShape]) -> dict[str, str]:
    """What adds to the residual stream, where products do it themselves."""
    layer = engine.decoder.layers[0]
    if engine.decoder.ranks is not None or layer.norm_after_attention is not None:
        return {}
    found = {
        f"residual.{shape.phase.value}": residual.kernel_name(
            layer.output, shape.new_tokens, fused=shape.new_tokens <= engine.decoder.fused_rows
        )
        for shape in _of_the_engine(engine, shapes)
    }
    return {role: name for role, name in found.items() if name is not None}


def _prefill_attention(engine: Engine, shapes: Sequence[StepShape]) -> dict[str, str]:
    """The kernel for prompts, if one of ours ran."""
    kernel, model = engine.decoder.attention.prefill_kernel, engine.model
    if kernel is None:
        return {}
    group = model.num_attention_heads // model.num_key_value_heads
    ran = any(
        kernel.fits(
            dtype=engine.dtype.torch,
            group=group,
            head_dim=model.head_dim,
            new_tokens=sequence.new_tokens,
        )
        for shape in shapes
        for sequence in shape.sequences
    )
    return {"attention.prefill": kernel.name} if ran else {}


def ceiling_needs(engine: Engine, config: RunConfig, steady: StepShape) -> CeilingNeeds:
    """What the live ceilings must look like beside steps of this shape, preferably decode steps."""
    options = cost_options(engine, config)
    traffic = step_cost(engine.model, engine.manifest, steady, options).traffic
    layer, head = engine.decoder.layers[0], engine.decoder.head
    projections = (layer.qkv, layer.output, *layer.feed_forward.projections, head)
    is_skinny = steady.phase is Phase.DECODE and config.kv_cache.layout is not KvLayout.NONE
    return CeilingNeeds(
        working_set_bytes=int(traffic.weights + traffic.kv_read),
        compute_dtype=engine.dtype.name,
        skinny_rows=steady.new_tokens if is_skinny else None,
        skinny_shapes=tuple(linear.shape for linear in projections) if is_skinny else (),
        skinny_formats=tuple(linear.format for linear in projections) if is_skinny else (),
    )
