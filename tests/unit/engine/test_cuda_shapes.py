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
from torch.utils._python_dispatch import TorchDispatchMode

from llmprof.engine import admission, linear, loading
from llmprof.engine.attention import chunk_kernels, decode_kernels
from llmprof.engine.engine import Engine
from llmprof.engine.kernels import packed, pointwise
from llmprof.engine.probe import NullProbe
from llmprof.engine.quantization.packed_weight import PackedWeight
from llmprof.engine.sampling import GreedySampler
from llmprof.schema.model import ModelConfig
from tests.published import LLAMA_3_1_8B, QWEN3_8B, decoder
from tests.tiny_decoders import on_paper, settings

pytestmark = pytest.mark.skipif(
    not importlib.util.find_spec("triton"), reason="triton is not installed"
)
MODEL = decoder("small", 2, 64, 96, 4, 2, 50, context=128)
PROMPT_TOKENS = 40
BETWEEN_PRODUCTS = {"triton_rotate_": 2, "triton_silu_mul": 2}
"""Of two layers, in every step."""
MULTIPROCESSORS = 132
"""Of an H200: they decide where sums are split among programs, which a second launch joins."""
NO_LAUNCH = ("aten.empty", "aten.new_empty")


class NoTensors:
    """Leaves weights as they are: these have no numbers."""

    def read_into(self, name: str, out: torch.Tensor, expert: int | None = None) -> None:
        pass

    def take_over(self, name: str, out: PackedWeight, expert: int | None = None) -> bool:
        return True


class OwnOperators(TorchDispatchMode):
    """Counts what runs of `llmprof`; everything must be on the device by then.

    And launches of kernels, with one for each operator of torch that is no view: its products may
    take two, where a library splits their sums.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls: Counter[str] = Counter()
        self.launches = 0

    def __torch_dispatch__(
        self,
        func: Any,
        types: tuple[type, ...],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if func.namespace == "llmprof":
            tensors = [one for one in args if isinstance(one, torch.Tensor)]
            assert {one.device.type for one in tensors} == {"meta"}
            self.calls[func.overloadpacket.__name__] += 1
            self.launches += own_launches(func.overloadpacket.__name__, args)
        elif not func.is_view and not str(func).startswith(NO_LAUNCH):
            self.launches += 1
        return func(*args, **(kwargs or {}))


def own_launches(name: str, args: tuple[Any, ...]) -> int:
    from llmprof.engine.kernels.triton.weight_plan import plan_matvec

    if name == "triton_decode_attention":
        return 2  # the tokens of any but short contexts are split among programs
    if name.startswith("triton_matvec"):
        x, codes = args[1:3] if name.endswith("add_") else args[:2]
        plan = plan_matvec(len(x), codes.shape[0], codes.shape[1], MULTIPROCESSORS)
        return 1 if plan.splits == 1 else 2
    return 1


@pytest.fixture(autouse=True)
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that has memory and runs Triton, and on which nothing is launched."""
    for module in (decode_kernels, chunk_kernels, pointwise):
        monkeypatch.setattr(module, "runs_triton", lambda device: device != "cpu")
    monkeypatch.setattr(packed, "triton_trouble", lambda device: None)
    monkeypatch.setattr(admission, "check_memory", lambda *_, **__: None)
    monkeypatch.setattr(loading, "open_tensors", lambda *_: NoTensors())


@torch.inference_mode()
def watched_steps(
    model: ModelConfig, batch: int, **groups: Mapping[str, object]
) -> list[OwnOperators]:
    """A prefill and a decode step; their logits are checked."""
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
    for _ in range(2):
        with OwnOperators() as own:
            logits = engine.forward(work.next_step(), work.cache, work.rotary, NullProbe())
        assert logits.shape[1] == model.vocab_size
        assert logits.shape[0] >= batch
        assert logits.dtype is torch.bfloat16
        assert logits.device == torch.device("meta")
        engine.sample(
            logits, GreedySampler(), work.tokens.narrow(1, work.num_tokens, 1), NullProbe()
        )
        work.advance()
        counted.append(own)
    return counted


def steps(batch: int = 3, **groups: Mapping[str, object]) -> list[Counter[str]]:
    return [step.calls for step in watched_steps(MODEL, batch, **groups)]


@pytest.mark.parametrize("layout", ["contiguous", "paged"])
@pytest.mark.parametrize("dtype", ["as_weights", "int8", "fp8"])
def test_a_cache_in_every_layout_and_dtype(layout: str, dtype: str) -> None:
    prefill, decode = steps(kv_cache={"layout": layout, "dtype": dtype})
    assert prefill == {**BETWEEN_PRODUCTS, "triton_kv_append_": 2}
    assert decode == {**prefill, "triton_decode_attention": 2}


@pytest.mark.parametrize("layout", ["none", "contiguous", "paged"])
def test_standard_attention(layout: str) -> None:
    appends = {} if layout == "none" else {"triton_kv_append_": 2}
    expected = {**BETWEEN_PRODUCTS, **appends}
    assert steps(kv_cache={"layout": layout}, attention={"kind": "standard"}) == [expected] * 2


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
def test_packed_weights(weights: Mapping[str, object]) -> None:
    """Four matrices in each of two layers, of which two add to the residual stream, and the head.

    The table's rows are unpacked by number.
    """
    prefill, decode = steps(weights=weights)
    assert prefill["triton_unpack_rows_"] >= 9
    assert decode == {
        **BETWEEN_PRODUCTS,
        "triton_kv_append_": 2,
        "triton_decode_attention": 2,
        "triton_matvec": 5,
        "triton_matvec_add_": 4,
        "triton_unpack_rows_": 1,
    }


def test_fp8_weights_where_the_gpu_multiplies_in_fp8(monkeypatch: pytest.MonkeyPatch) -> None:
    """A prompt of 3 x 40 rows: each of 8 products rounds its rows; the table and the head are int8."""
    monkeypatch.setattr(linear, "multiplies_fp8", lambda device: device.type == "meta")
    prefill, decode = steps(weights={"quantization": "fp8"})
    assert prefill == {
        **BETWEEN_PRODUCTS,
        "triton_kv_append_": 2,
        "triton_quantize_rows": 8,
        "triton_matvec": 1,
        "triton_unpack_rows_": 1,
    }
    assert "triton_quantize_rows" not in decode
    assert decode["triton_matvec"] + decode["triton_matvec_add_"] == 9


def launches(model: ModelConfig, **groups: Mapping[str, object]) -> tuple[int, int]:
    """Of a decode step of one sequence: in each layer, and besides."""
    two, three = (
        watched_steps(model.model_copy(update={"num_hidden_layers": layers}), 1, **groups)[1]
        for layers in (2, 3)
    )
    per_layer = three.launches - two.launches
    return per_layer, two.launches - 2 * per_layer


INT8_PAGED = {"layout": "paged", "dtype": "int8"}


@pytest.mark.parametrize(
    ("model", "groups", "per_layer"),
    [
        (LLAMA_3_1_8B, {}, 11),
        (LLAMA_3_1_8B, {"kv_cache": INT8_PAGED}, 11),
        (LLAMA_3_1_8B, {"weights": {"quantization": "int8"}}, 13),
        (QWEN3_8B, {}, 12),
    ],
    ids=["llama", "llama-int8-kv", "llama-int8-weights", "qwen3-head-norms"],
)
def test_an_8b_decode_step_launches_about_350_kernels_not_200(
    model: ModelConfig, groups: Mapping[str, Mapping[str, object]], per_layer: int
) -> None:
    """Two norms, four products, rotation, append, attention in two parts, gate: 11 of a layer.

    With sums of `o_proj` and `down_proj` split, two more; norms of heads are one more.
    """
    found, besides = launches(model, **groups)
    assert found == per_layer
    assert besides <= 20


def test_without_triton_an_8b_decode_step_takes_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch's three for the rotation and two for the gate; its attention is counted as one."""
    for module in (decode_kernels, chunk_kernels, pointwise):
        monkeypatch.setattr(module, "runs_triton", lambda device: False)
    prefill, decode = watched_steps(MODEL, 1)
    assert not prefill.calls + decode.calls
    assert launches(LLAMA_3_1_8B)[0] == 13
