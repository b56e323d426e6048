"""Steps as on a GPU, without one: shapes and dtypes of every tensor, and which kernels run.

torch's device `meta` takes its place: tensors without numbers, which refuse to be mixed with those
of the CPU. (Fake tensors would say `cuda`, and cannot be sliced without a CUDA build of torch.)
"""

import importlib.util
from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest
import torch

from llmprof.costs.step import step_cost
from llmprof.engine import admission, linear, loading
from llmprof.engine.attention import CacheKernels, chunk_kernels, decode_kernels
from llmprof.engine.attention.score_rule import PLAIN, ScoreRule
from llmprof.engine.description import cost_options
from llmprof.engine.engine import Engine
from llmprof.engine.execution.decode_inputs import DecodeInputs
from llmprof.engine.kernels import fused, packed, pointwise
from llmprof.engine.probe import NullProbe
from llmprof.engine.quantization.packed_weight import PackedWeight
from llmprof.engine.sampling import GreedySampler
from llmprof.engine.step_batch import StepBatch
from llmprof.instruments import dispatched_op
from llmprof.instruments.op_recorder import OpRecorder
from llmprof.schema.cost import OpGroup, Phase, SequenceShape, StepShape
from llmprof.schema.model import ModelConfig
from tests.own_launches import OwnOperators
from tests.published import LLAMA_3_1_8B, QWEN3_8B, decoder
from tests.tiny_decoders import on_paper, settings

pytestmark = pytest.mark.skipif(
    not importlib.util.find_spec("triton"), reason="triton is not installed"
)
MODEL = decoder("small", 2, 64, 96, 4, 2, 50, context=128)
PROMPT_TOKENS = 40
MANY_ROWS = {"triton_rotate_": 2, "triton_silu_mul": 2}
"""Between the products of two layers, in steps of many rows."""
FEW_LOGITS = {"triton_normed_matvec": 1}
"""The head, of a row for each sequence, with the last norm."""
FEW_ROWS = {
    "triton_normed_matvec": 3,
    "triton_gated_matvec": 2,
    "triton_added_matvec_": 4,
}
"""The products of two layers and the head, with all that lies between them but attention's."""


class NoTensors:
    """Leaves weights as they are: these have no numbers."""

    def read_into(self, name: str, out: torch.Tensor, expert: int | None = None) -> None:
        pass

    def take_over(self, name: str, out: PackedWeight, expert: int | None = None) -> bool:
        return True


@pytest.fixture(autouse=True)
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that has memory and runs Triton, and on which nothing is launched."""
    for module in (decode_kernels, chunk_kernels, pointwise, fused):
        monkeypatch.setattr(module, "runs_triton", lambda device: device != "cpu")
    monkeypatch.setattr(packed, "triton_trouble", lambda device: None)
    monkeypatch.setattr(admission, "check_memory", lambda *_, **__: None)
    monkeypatch.setattr(loading, "open_tensors", lambda *_: NoTensors())


@torch.inference_mode()
def watched_steps(
    model: ModelConfig, batch: int, **groups: Mapping[str, object]
) -> list[OwnOperators]:
    """A prefill and two decode steps; their logits are checked."""
    weights = {"source": "random", "dtype": "bf16", **groups.pop("weights", {})}
    config = settings(
        weights=weights, workload={"prompt_tokens": PROMPT_TOKENS, "batch": batch}, **groups
    )
    engine = Engine.load(
        on_paper(model), config, device="meta", threads=1, host_available_bytes=2**33
    )
    prompts = torch.zeros(batch, PROMPT_TOKENS, dtype=torch.int64)
    work = engine.open_batch(prompts, output_tokens=4)
    counted = []
    for _ in range(3):
        with OwnOperators() as own:
            logits = engine.forward(work.next_step(), work.cache, work.rotary, NullProbe())
            out = work.tokens.narrow(1, work.num_tokens, 1)
            engine.sample(logits, GreedySampler(), out, NullProbe())
        assert logits.shape[1] == model.vocab_size
        assert logits.shape[0] >= batch
        assert logits.dtype is torch.bfloat16
        assert logits.device == torch.device("meta")
        work.advance()
        counted.append(own)
    return counted


def steps(batch: int = 3, **groups: Mapping[str, object]) -> list[Counter[str]]:
    return [step.calls for step in watched_steps(MODEL, batch, **groups)[:2]]


@pytest.mark.parametrize("layout", ["contiguous", "paged"])
@pytest.mark.parametrize("dtype", ["as_weights", "int8", "fp8"])
def test_a_cache_in_every_layout_and_dtype(layout: str, dtype: str) -> None:
    prefill, decode = steps(kv_cache={"layout": layout, "dtype": dtype})
    assert prefill == {**MANY_ROWS, **FEW_LOGITS, "triton_kv_append_": 2}
    assert decode == {**FEW_ROWS, "triton_turn_append_": 2, "triton_decode_attention": 2}


def test_more_rows_than_are_fused() -> None:
    _, decode = steps(batch=17)
    assert decode == {**MANY_ROWS, "triton_kv_append_": 2, "triton_decode_attention": 2}


@pytest.mark.parametrize("fused", ["on", "off"])
def test_the_switch(fused: str) -> None:
    """Off: as with many rows, the products of float weights being torch's."""
    prefill, decode = steps(execution={"fused": fused})
    few = {**FEW_ROWS, "triton_turn_append_": 2}
    apart = {**MANY_ROWS, "triton_kv_append_": 2}
    assert decode == {**(few if fused == "on" else apart), "triton_decode_attention": 2}
    assert prefill == {**apart, **(FEW_LOGITS if fused == "on" else {})}


def test_an_engine_on_the_same_weights_takes_the_other_setting() -> None:
    weights = {"source": "random", "dtype": "bf16"}
    off, auto = (settings(weights=weights, execution={"fused": one}) for one in ("off", "auto"))
    engine = Engine.load(on_paper(MODEL), off, device="meta", threads=1, host_available_bytes=2**33)
    assert engine.decoder.fused_rows == 0
    assert engine.arranged(auto).decoder.fused_rows == 16


class WholeStep:
    """A library's kernel, as far as shapes go."""

    name = "a library's"

    def begin_step(self, step: StepBatch) -> None: ...

    def before_replay(self, step: StepBatch, block_tokens: int) -> None: ...

    def __call__(
        self, query: torch.Tensor, store: torch.Tensor, step: StepBatch, rule: ScoreRule = PLAIN
    ) -> torch.Tensor:
        return query.new_empty(query.shape[0], query.shape[1] * query.shape[2])


@pytest.mark.parametrize("batch", [3, 17])
def test_attention_of_a_library(batch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes queries as the turning kernel leaves them, and what it gives is projected and added."""
    kernels = CacheKernels("a library", step=WholeStep())
    monkeypatch.setattr("llmprof.engine.engine.cache_kernels", lambda *_, **__: kernels)
    _, decode = steps(batch)
    few, many = {**FEW_ROWS, "triton_turn_append_": 2}, {**MANY_ROWS, "triton_kv_append_": 2}
    assert decode == (few if batch == 3 else many)


@pytest.mark.parametrize("layout", ["none", "contiguous", "paged"])
def test_standard_attention(layout: str) -> None:
    prefill, decode = steps(kv_cache={"layout": layout}, attention={"kind": "standard"})
    appends = {} if layout == "none" else {"triton_kv_append_": 2}
    assert prefill == {**MANY_ROWS, **FEW_LOGITS, **appends}
    # without a cache all tokens are new ones again
    assert decode == (prefill if layout == "none" else {**FEW_ROWS, "triton_turn_append_": 2})


@pytest.mark.parametrize(
    "weights",
    [
        {"quantization": "int8"},
        {"quantization": "int8", "group_size": "channel"},
        {"quantization": "int4", "group_size": 64},
        {"quantization": "int4", "symmetric": True},
        {"quantization": "fp8"},
    ],
)
@pytest.mark.parametrize("batch", [3, 20])
def test_packed_weights(weights: Mapping[str, object], batch: int) -> None:
    """Four matrices in each of two layers, of which two add to the residual stream, and the head.

    The table's rows are unpacked by number.
    """
    prefill, decode = steps(batch, weights=weights)
    assert prefill["triton_unpack_rows_"] >= 9
    if batch == 3:
        expected = {**FEW_ROWS, "triton_turn_append_": 2}
    else:
        products = {"triton_matvec": 5, "triton_matvec_add_": 4}
        expected = {**MANY_ROWS, "triton_kv_append_": 2, **products}
    assert decode == {**expected, "triton_decode_attention": 2, "triton_unpack_rows_": 1}


def test_fp8_weights_where_the_gpu_multiplies_in_fp8(monkeypatch: pytest.MonkeyPatch) -> None:
    """A prompt of 3 x 40 rows: each of 8 products rounds its rows; the table and the head are int8."""
    monkeypatch.setattr(linear, "multiplies_fp8", lambda device: device.type == "meta")
    prefill, decode = steps(weights={"quantization": "fp8"})
    assert prefill == {
        **MANY_ROWS,
        **FEW_LOGITS,
        "triton_kv_append_": 2,
        "triton_quantize_rows": 8,
        "triton_unpack_rows_": 1,
    }
    assert decode == {
        **FEW_ROWS,
        "triton_turn_append_": 2,
        "triton_decode_attention": 2,
        "triton_unpack_rows_": 1,
    }


def launches(model: ModelConfig, batch: int = 1, **groups: Mapping[str, object]) -> tuple[int, int]:
    """Of a decode step that follows another one in the same block: in each layer, and besides."""
    two, three = (
        watched_steps(model.model_copy(update={"num_hidden_layers": layers}), batch, **groups)[2]
        for layers in (2, 3)
    )
    per_layer = three.launches - two.launches
    return per_layer, two.launches - 2 * per_layer


INT8_PAGED = {"kv_cache": {"layout": "paged", "dtype": "int8"}}
INT8 = {"weights": {"quantization": "int8"}}
INT4 = {"weights": {"quantization": "int4"}}
FP8 = {"weights": {"quantization": "fp8"}}
NATIVE = {"attention": {"backend": "native"}}
WITH_BIASES = LLAMA_3_1_8B.model_copy(update={"attention_bias": True})


@pytest.mark.parametrize("batch", [1, 16])
@pytest.mark.parametrize(
    ("model", "groups"),
    [
        (LLAMA_3_1_8B, {}),
        (LLAMA_3_1_8B, INT8_PAGED),
        (LLAMA_3_1_8B, INT8),
        (LLAMA_3_1_8B, INT4),
        (LLAMA_3_1_8B, FP8),
        (LLAMA_3_1_8B, NATIVE),
        (WITH_BIASES, {}),
        (QWEN3_8B, {}),
    ],
    ids=["bf16", "int8-kv", "int8", "int4", "fp8", "native", "biases", "head-norms"],
)
def test_an_8b_decode_step_launches_200_kernels_at_most(
    model: ModelConfig, groups: Mapping[str, Mapping[str, object]], batch: int
) -> None:
    """Of a layer: projections, rotation and append, attention, projection, gate, projection.

    Besides: the next positions, embedding, rotary tables, head and sampling; and what goes into a graph.
    """
    per_layer, besides = launches(model, batch, **groups)
    assert per_layer == 6
    assert besides == 5
    assert besides + launches_of_graph_inputs() <= 8


def launches_of_graph_inputs() -> int:
    """What a captured step reads is copied to where it reads it."""
    numbers = torch.zeros(2, 3, dtype=torch.int32, device="meta")
    x, table = (torch.zeros(3, size, device="meta") for size in (64, 16))
    tables = torch.zeros(3, 5, dtype=torch.int32, device="meta")
    step = StepBatch(numbers[0].long(), numbers[0], numbers[0], tables, numbers[1], ())
    inputs = DecodeInputs.like(x, (table, table), step)
    with OwnOperators() as own:
        inputs.copy_(x, (table, table), step)
    count: int = own.launches
    return count


def test_without_triton_an_8b_decode_step_takes_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch's three for the rotation and two for the gate; its attention is counted as one."""
    for module in (decode_kernels, chunk_kernels, pointwise, fused):
        monkeypatch.setattr(module, "runs_triton", lambda device: False)
    assert not any(step.calls for step in watched_steps(MODEL, 1))
    assert launches(LLAMA_3_1_8B)[0] == 13


@pytest.mark.parametrize("batch", [1, 20])
@pytest.mark.parametrize("quantization", ["none", "int8", "fp8"])
@pytest.mark.parametrize("model", [LLAMA_3_1_8B, QWEN3_8B], ids=["llama", "qwen3"])
def test_costs_count_the_operators_that_run(
    model: ModelConfig, quantization: str, batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a decode step, group by group: every operator is one call of an op."""
    has_kernel = dispatched_op._has_kernel
    spelled = {"META": "Meta"}  # all other keys that recorders ask for are written in capitals

    def has_kernel_there(func: Any, key: str) -> bool:
        return has_kernel(func, spelled.get(key, key))

    monkeypatch.setattr(dispatched_op, "_has_kernel", has_kernel_there)
    two = model.model_copy(update={"num_hidden_layers": 2})
    config = settings(
        weights={"source": "random", "dtype": "bf16", "quantization": quantization},
        workload={"prompt_tokens": PROMPT_TOKENS, "batch": batch},
    )
    engine = Engine.load(
        on_paper(two), config, device="meta", threads=1, host_available_bytes=2**33
    )
    work = engine.open_batch(torch.zeros(batch, PROMPT_TOKENS, dtype=torch.int64), output_tokens=4)
    with OwnOperators():
        engine.step(work, GreedySampler(), NullProbe())
    shape = StepShape(
        phase=Phase.DECODE,
        sequences=(SequenceShape(count=batch, new_tokens=1, cached_tokens=PROMPT_TOKENS),),
        logit_rows=batch,
    )
    with OpRecorder() as recorder:
        formulas = dict(recorder._formulas)
        del formulas[torch.ops.llmprof.triton_decode_attention]  # it asks for numbers of tensors
        recorder._formulas = formulas
        recorder.step_begin(shape)
        engine.step(work, GreedySampler(), recorder)
        recorder.step_end()
    (counted,) = recorder.steps()
    ran: Counter[OpGroup] = Counter()
    for op in counted.ops:
        ran[op.group] += op.calls
    cost = step_cost(two, engine.manifest, shape, cost_options(engine, config))
    costed: Counter[OpGroup] = Counter()
    for op in cost.ops:
        costed[op.group] += op.calls
    del ran[OpGroup.OTHER]  # positions and rotary tables: no cost is stated for them
    if batch == 1:
        assert {OpGroup.NORM, OpGroup.ROPE, OpGroup.ACTIVATION}.isdisjoint(ran)
        assert ran == costed
        flops = sum(op.flops or 0 for op in counted.ops)
        attention = sum(op.flops for op in cost.ops if op.group is OpGroup.ATTENTION)
        assert sum(op.flops for op in cost.ops) - attention == flops
    else:
        assert set(ran) == set(costed)
        assert {OpGroup.NORM, OpGroup.ROPE, OpGroup.ACTIVATION} <= set(ran)
