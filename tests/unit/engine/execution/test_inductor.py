"""What inductor makes of a step on a CPU: the C++ that it writes is read, and its logits are checked."""

import dataclasses
import shutil
from pathlib import Path

import pytest
import torch

from llmprof.engine.attention import StandardAttention
from llmprof.engine.engine import Engine
from llmprof.engine.execution import EagerRunner, graph_step
from llmprof.engine.execution.replay_runner import ReplayRunner
from llmprof.engine.kernels.launch import runs_native
from llmprof.engine.kv_cache import KvPool
from tests.compiled_engines import compiling, logits_of, recorded, running
from tests.tiny_decoders import LLAMA, load_engine, settings, write_decoder

pytestmark = [
    pytest.mark.usefixtures("fresh_compiler"),
    pytest.mark.skipif(
        not (shutil.which("g++") or shutil.which("clang++")),
        reason="inductor needs a C++ compiler on a CPU",
    ),
]


def code_of(engine: Engine, replay: ReplayRunner, expected: torch.Tensor) -> str:
    """What inductor writes for a step, whose logits are checked."""
    from torch._inductor.utils import run_and_get_code

    found, (code,) = run_and_get_code(logits_of, running(engine, replay))
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    return str(code)


def buffers(code: str, shape: tuple[int, ...]) -> int:
    return code.count(f"empty_strided_cpu(({', '.join(map(str, shape))})")


def test_inductor_fuses_what_lies_between_products_and_copies_no_cache(tmp_path: Path) -> None:
    """Two norms of a layer and the last one, each with the addition before it, a rotation and a gate.

    Keys and values stay where they are.
    """
    engine = load_engine(settings(write_decoder(tmp_path, LLAMA)))
    replay = compiling("inductor")
    code = code_of(engine, replay, logits_of(engine))
    layers = len(engine.decoder.layers)
    for operator in ("kv_append_", "decode_attention"):
        assert code.count(f"torch.ops.llmprof.{operator}.default(") == layers
    assert code.count("torch.ops.llmprof.matvec.default(") == 4 * layers + 1
    body = code[code.index("def call(") :]
    assert 0 < body.count("        cpp_fused_") <= 4 * layers + 2
    (step,) = recorded(replay)
    assert isinstance(step.cache, KvPool)
    assert not buffers(code, tuple(step.cache.stored(0).shape))


@pytest.mark.usefixtures("torch_only")
def test_inductor_still_writes_the_scores_of_standard_attention(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No pattern of its passes makes fused attention of three kernels that are to be measured apart."""
    monkeypatch.setattr(graph_step, "CONTEXT_STEP", 32)
    monkeypatch.setattr("llmprof.engine.kv_cache.pool.runs_native", runs_native)
    engine = load_engine(settings(write_decoder(tmp_path, LLAMA)))
    expected = logits_of(running(engine, EagerRunner(), StandardAttention()))
    replay = compiling("inductor", by_bucket=True)
    decoder = dataclasses.replace(engine.decoder, attention=StandardAttention())
    code = code_of(dataclasses.replace(engine, decoder=decoder), replay, expected)
    layers = len(engine.decoder.layers)
    assert "scaled_dot_product" not in code
    assert code.count("extern_kernels.baddbmm(") == code.count("extern_kernels.bmm(") == layers
