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

from llmprof.engine import engine as engine_module
from llmprof.engine import loading
from llmprof.engine.attention import chunk_kernels, decode_kernels
from llmprof.engine.engine import Engine
from llmprof.engine.kernels import packed
from llmprof.engine.probe import NullProbe
from llmprof.engine.quantization.packed_weight import PackedWeight
from llmprof.engine.sampling import GreedySampler
from tests.published import decoder
from tests.tiny_decoders import on_paper, settings

pytestmark = pytest.mark.skipif(
    not importlib.util.find_spec("triton"), reason="triton is not installed"
)
MODEL = decoder("small", 2, 64, 96, 4, 2, 50, context=128)
PROMPT_TOKENS = 40
KERNELS = (
    "triton_matvec",
    "triton_unpack_rows_",
    "triton_decode_attention",
    "triton_chunk_attention",
)


class NoTensors:
    """Leaves weights as they are: these have no numbers."""

    def read_into(self, name: str, out: torch.Tensor) -> None:
        pass

    def take_over(self, name: str, out: PackedWeight) -> bool:
        return True


class OwnOperators(TorchDispatchMode):
    """Counts what runs of `llmprof`; everything must be on the device by then."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls: Counter[str] = Counter()

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
        return func(*args, **(kwargs or {}))


@pytest.fixture(autouse=True)
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that has memory and runs Triton, and on which nothing is launched."""
    for module in (decode_kernels, chunk_kernels):
        monkeypatch.setattr(module, "runs_triton", lambda device: device != "cpu")
    monkeypatch.setattr(packed, "triton_trouble", lambda device: None)
    monkeypatch.setattr(engine_module, "check_memory", lambda *_, **__: None)
    monkeypatch.setattr(loading, "open_tensors", lambda *_: NoTensors())


@torch.inference_mode()
def steps(batch: int = 3, **groups: Mapping[str, object]) -> list[Counter[str]]:
    """What a prefill and a decode step run; their logits are checked."""
    weights = {"source": "random", "dtype": "bf16", **groups.pop("weights", {})}
    config = settings(
        weights=weights, workload={"prompt_tokens": PROMPT_TOKENS, "batch": batch}, **groups
    )
    engine = Engine.load(
        on_paper(MODEL), config, device="meta", threads=1, host_available_bytes=2**33
    )
    prompts = torch.zeros(batch, PROMPT_TOKENS, dtype=torch.int64)
    work = engine.open_batch(prompts, output_tokens=4)
    counted = []
    for _ in range(2):
        with OwnOperators() as own:
            logits = engine.forward(work.next_step(), work.cache, work.rotary, NullProbe())
        assert logits.shape[1] == 50
        assert logits.shape[0] >= batch
        assert logits.dtype is torch.bfloat16
        assert logits.device == torch.device("meta")
        engine.sample(
            logits, GreedySampler(), work.tokens.narrow(1, work.num_tokens, 1), NullProbe()
        )
        work.advance()
        counted.append(own.calls)
    return counted


@pytest.mark.parametrize("layout", ["contiguous", "paged"])
@pytest.mark.parametrize("dtype", ["as_weights", "int8", "fp8"])
def test_a_cache_in_every_layout_and_dtype(layout: str, dtype: str) -> None:
    prefill, decode = steps(kv_cache={"layout": layout, "dtype": dtype})
    assert not prefill
    assert decode == {"triton_decode_attention": 2}


@pytest.mark.parametrize("layout", ["none", "contiguous", "paged"])
def test_standard_attention(layout: str) -> None:
    assert steps(kv_cache={"layout": layout}, attention={"kind": "standard"}) == [{}, {}]


@pytest.mark.parametrize(
    "weights",
    [
        {"quantization": "int8"},
        {"quantization": "int8", "group_size": "channel"},
        {"quantization": "int4", "group_size": 64},
        {"quantization": "int4", "symmetric": True},
    ],
)
def test_packed_weights(weights: Mapping[str, object]) -> None:
    """Four matrices in each of two layers and the head; the table's rows are unpacked by number."""
    prefill, decode = steps(weights=weights)
    assert prefill["triton_unpack_rows_"] >= 9
    assert decode["triton_matvec"] == 9
    assert decode["triton_unpack_rows_"] == 1
    assert not set(prefill | decode) - set(KERNELS)
