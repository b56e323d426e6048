"""Decode steps as torch.compile sees them on a GPU, without one: traced whole on tensors without numbers.

What becomes kernels of inductor is torch's, and what must stay opaque is an operator of ours.
"""

import importlib.util
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch

from llmprof.engine import admission, linear, loading
from llmprof.engine.attention import chunk_kernels, decode_kernels
from llmprof.engine.description import describe_engine
from llmprof.engine.engine import Engine
from llmprof.engine.execution import runner
from llmprof.engine.kernels import fused, packed, pointwise
from llmprof.engine.model import Decoder
from llmprof.engine.probe import NullProbe
from llmprof.engine.quantization.packed_weight import PackedWeight
from llmprof.schema.cost import Phase, SequenceShape, StepShape
from llmprof.schema.model import ModelConfig
from tests.published import QWEN3_8B, decoder
from tests.tiny_decoders import on_paper, settings

pytestmark = pytest.mark.skipif(
    not importlib.util.find_spec("triton"), reason="triton is not installed"
)
MODEL = decoder("small", 2, 64, 96, 4, 2, 50, context=128)
HEAD_NORMS = QWEN3_8B.model_copy(update={"num_hidden_layers": 2})
ATTENDS = {"triton_kv_append_": 2, "triton_decode_attention": 2}
PROMPT_TOKENS = 40


class NoTensors:
    """Leaves weights as they are: these have no numbers."""

    def read_into(self, name: str, out: torch.Tensor, expert: int | None = None) -> None:
        pass

    def take_over(self, name: str, out: PackedWeight, expert: int | None = None) -> bool:
        return True


def embed(decoder: Decoder, ids: torch.Tensor) -> torch.Tensor:
    """Started before the compiled step, by a kernel that packed tables have of their own."""
    size = decoder.config.hidden_size
    return torch.zeros(len(ids), size, dtype=torch.bfloat16, device=ids.device)


@pytest.fixture
def graphs(monkeypatch: pytest.MonkeyPatch) -> list[torch.fx.GraphModule]:
    """What a compiler would be given, of a GPU that has memory and runs Triton."""
    for module in (decode_kernels, chunk_kernels, pointwise, fused):
        monkeypatch.setattr(module, "runs_triton", lambda device: device != "cpu")
    for module in (packed, runner):
        monkeypatch.setattr(module, "triton_trouble", lambda device: None)
    monkeypatch.setattr(admission, "check_memory", lambda *_, **__: None)
    monkeypatch.setattr(loading, "open_tensors", lambda *_: NoTensors())
    found: list[torch.fx.GraphModule] = []

    def keep(graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Callable[..., Any]:
        found.append(graph)
        return graph.forward

    monkeypatch.setattr(torch._dynamo, "lookup_backend", lambda name: keep)
    monkeypatch.setattr(Decoder, "embed", embed)
    torch.compiler.reset()
    return found


def run_steps(model: ModelConfig, batch: int, **groups: Mapping[str, object]) -> Engine:
    """Three decode steps."""
    config = settings(
        weights={"source": "random", "dtype": "bf16", **groups.pop("weights", {})},
        workload={"prompt_tokens": PROMPT_TOKENS, "batch": batch},
        execution={"mode": "compiled"},
        **groups,
    )
    engine = Engine.load(
        on_paper(model), config, device="meta", threads=1, host_available_bytes=2**33
    )
    prompts = torch.zeros(batch, PROMPT_TOKENS, dtype=torch.int64)
    work = engine.open_batch(prompts, output_tokens=8)
    work.restart(num_cached=PROMPT_TOKENS)
    for _ in range(3):
        with torch.inference_mode():
            logits = engine.forward(work.next_step(), work.cache, work.rotary, NullProbe())
        assert logits.shape == (batch, model.vocab_size)
        work.advance()
    return engine


def own_operators(graph: torch.fx.GraphModule) -> Counter[str]:
    names = (str(node.target) for node in graph.graph.nodes if node.op == "call_function")
    return Counter(
        name.split(".")[1] if name.startswith("llmprof.") else name.partition("::")[2]
        for name in names
        if "llmprof" in name
    )


@pytest.mark.parametrize(
    ("groups", "batch", "products"),
    [
        ({}, 3, {}),
        ({"kv_cache": {"layout": "paged", "dtype": "int8"}}, 3, {}),
        ({"kv_cache": {"layout": "paged", "dtype": "fp8"}}, 3, {}),
        ({"weights": {"quantization": "int8"}}, 3, {"triton_matvec": 9}),
        ({"weights": {"quantization": "int4"}}, 20, {"triton_matvec": 9}),
        ({"weights": {"quantization": "fp8"}}, 3, {"triton_matvec": 9}),
        ({"weights": {"quantization": "int4"}}, 40, {"unpacked_product": 9}),
    ],
    ids=repr,
)
def test_one_graph_serves_all_contexts(
    groups: dict[str, Any], batch: int, products: dict[str, int], graphs: Any
) -> None:
    """Norms, rotation, gate and additions are torch's in it, and so are products of float weights."""
    engine = run_steps(MODEL, batch, **groups)
    (graph,) = graphs
    assert own_operators(graph) == {**ATTENDS, **products}
    assert engine.num_compiled == 1
    assert engine.decoder.fused_rows == 0


def test_norms_of_heads_are_torch_too(graphs: Any) -> None:
    run_steps(HEAD_NORMS, 2)
    (graph,) = graphs
    assert own_operators(graph) == ATTENDS


def test_many_rows_of_fp8_weights_where_the_gpu_multiplies_in_fp8(
    graphs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Eight products round their rows; the head is int8, and unpacked."""
    monkeypatch.setattr(linear, "multiplies_fp8", lambda device: device.type == "meta")
    run_steps(MODEL, 40, weights={"quantization": "fp8"})
    (graph,) = graphs
    assert own_operators(graph) == {**ATTENDS, "triton_quantize_rows": 8, "unpacked_product": 1}


@pytest.mark.parametrize("layout", ["contiguous", "paged"])
def test_standard_attention_is_three_kernels_of_torch(layout: str, graphs: Any) -> None:
    run_steps(MODEL, 2, attention={"kind": "standard"}, kv_cache={"layout": layout})
    (graph,) = graphs
    assert own_operators(graph) == {"triton_kv_append_": 2}


def test_the_kernels_that_ran_are_those_of_torch_compile(graphs: Any) -> None:
    engine = run_steps(MODEL, 2)
    work = engine.open_batch(torch.zeros(2, PROMPT_TOKENS, dtype=torch.int64), output_tokens=4)
    sequences = (SequenceShape(count=2, new_tokens=1, cached_tokens=PROMPT_TOKENS),)
    decode = StepShape(phase=Phase.DECODE, sequences=sequences, logit_rows=2)
    described = describe_engine(
        engine,
        [decode],
        sampling_kernel="argmax",
        cache=work.cache,
        kv_bytes_used=0,
        waits_for_tokens=False,
    )
    assert "torch.compile (inductor)" in described.kernels["execution"]
    assert {"norm", "rope", "activation", "residual.decode"}.isdisjoint(described.kernels)
    assert described.compiled_steps == 1
