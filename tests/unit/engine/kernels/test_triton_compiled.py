"""Kernels for GPUs, compiled for two of them without having one, by the arguments of real calls.

The interpreter knows no layouts, no types of registers and no tensor cores: that a kernel compiles,
and loads 16 bytes at once, shows here.
"""

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch

from llmprof.costs.weight_formats import WeightFormat
from llmprof.engine.linear import Linear
from llmprof.engine.quantization.packed_weight import PackedWeight

triton = pytest.importorskip("triton")
AMPERE, HOPPER = 80, 90
CUOBJDUMP = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
has_cuobjdump = pytest.mark.skipif(not CUOBJDUMP.exists(), reason="this triton has no cuobjdump")
VERSION = tuple(int(part) for part in triton.__version__.split(".")[:2])
"""Tests run with those of torch 2.11 (3.6), 2.13 (3.7) and 2.14 (3.8), which compile differently."""
REGISTERS = 65_536
"""Of a multiprocessor, as its 64 K of 32 bits have been since Kepler."""


class Driver:
    """Says which GPU there is, and nothing else."""

    def __init__(self, capability: int) -> None:
        self._capability = capability

    def get_current_target(self) -> Any:
        from triton.backends.compiler import GPUTarget

        return GPUTarget("cuda", self._capability, 32)

    def get_current_device(self) -> int:
        return self._capability  # kernels are kept by it

    def get_current_stream(self, device: int) -> int:
        return 0


class Compiled:
    """The machine code of every kernel that was called; none of them ran."""

    def __init__(self) -> None:
        self.ptx: dict[str, str] = {}
        self.cubins: dict[str, bytes] = {}

    def resources(self, name: str, folder: Path) -> dict[str, int]:
        """Of a kernel, by NVIDIA's cuobjdump: REG and STACK of a thread, SHARED of a program."""
        cubin = folder / f"{name}.cubin"
        cubin.write_bytes(self.cubins[name])
        told = subprocess.run(
            [CUOBJDUMP, "--dump-resource-usage", cubin], capture_output=True, text=True, check=True
        )
        return {key: int(value) for key, value in re.findall(r"([A-Z]+):(\d+)", told.stdout)}


@pytest.fixture
def compiled(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Compiled:
    from triton.runtime.jit import JITFunction

    from llmprof.engine.kernels.triton import (
        attention_chunk,
        attention_decode,
        fused_products,
        quantize_rows,
        weight_matvec,
        weight_unpack,
    )

    found, run = Compiled(), JITFunction.run

    def compile_only(self: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> None:
        kernel = run(self, *args, grid=grid, warmup=True, **kwargs)
        found.ptx[kernel.name] = kernel.asm["ptx"]
        found.cubins[kernel.name] = kernel.asm["cubin"]

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(JITFunction, "run", compile_only)
    for module in (
        attention_decode,
        attention_chunk,
        fused_products,
        quantize_rows,
        weight_matvec,
        weight_unpack,
    ):
        native = request.param == HOPPER
        monkeypatch.setattr(module, "converts_fp8", lambda device, native=native: native)
    monkeypatch.setattr(attention_decode, "multiprocessors", lambda device: 132)
    for module in (weight_matvec, fused_products):
        monkeypatch.setattr(module, "multiprocessors", lambda device: 132)
    monkeypatch.setattr(triton.runtime.driver, "_active", Driver(request.param))
    return found


def in_one_piece(ptx: str, what: str) -> int:
    """Instructions that move 16 bytes: loads of four words, or copies to shared memory."""
    return len(re.findall(what, ptx))


WIDE_LOAD = r"ld\.global\S*\.v4\.b32"
WIDE_FIRST = r"ld\.global\S*L1::evict_first\S*\.v4\.b32"
WIDE_COPY = r"cp\.async\.cg\.shared\.global"


@pytest.mark.parametrize(
    ("compiled", "formats"),
    [
        (HOPPER, (WeightFormat("int8"), WeightFormat("int4", 32, symmetric=False))),
        (HOPPER, (WeightFormat("fp8"),)),
        (AMPERE, (WeightFormat("fp8"),)),
    ],
    indirect=["compiled"],
)
def test_weights(compiled: Compiled, formats: tuple[WeightFormat, ...]) -> None:
    from llmprof.engine.kernels.triton.weight_matvec import triton_matvec, triton_matvec_add_
    from llmprof.engine.kernels.triton.weight_unpack import triton_unpack_rows_

    for fmt in formats:
        packed = PackedWeight.empty(fmt, torch.bfloat16, 1024, 1024, torch.empty)
        stored = packed.codes, packed.scales, packed.minimums
        number, group_size = fmt.number, fmt.group_size or 0
        for rows in (1, 8):
            x = torch.empty(rows, 1024, dtype=torch.bfloat16)
            triton_matvec(x, *stored, None, number, group_size)
            triton_matvec_add_(x.new_empty(rows, 1024), x, *stored, None, number, group_size)
        assert in_one_piece(compiled.ptx["fused_one_row"], WIDE_LOAD) >= 4
        assert in_one_piece(compiled.ptx["_multiply_by_dots"], WIDE_COPY) >= 2
        assert "mma" in compiled.ptx["_multiply_by_dots"]
        triton_unpack_rows_(x.new_empty(64, 1024), *stored, None, 0, number, group_size)
        assert in_one_piece(compiled.ptx["_unpack"], WIDE_LOAD) >= 1
    assert "_add" in compiled.ptx  # 32 programs for 132 multiprocessors: the sums are split


@pytest.mark.parametrize("compiled", [AMPERE, HOPPER], indirect=True)
def test_activations_in_fp8(compiled: Compiled, request: pytest.FixtureRequest) -> None:
    """Hopper converts two numbers with one instruction; Ampere has none."""
    from llmprof.engine.kernels.triton.quantize_rows import triton_quantize_rows

    triton_quantize_rows(torch.empty(64, 14336, dtype=torch.bfloat16))
    ptx = compiled.ptx["_quantize"]
    hopper = request.node.callspec.params["compiled"] == HOPPER
    assert ("e4m3x2" in ptx) is hopper
    assert in_one_piece(ptx, WIDE_LOAD) >= 2


FORMATS = (
    None,
    WeightFormat("int8"),
    WeightFormat("int8", 32),
    WeightFormat("int4", 32, symmetric=False),
    WeightFormat("fp8"),
)


@pytest.mark.parametrize(
    ("compiled", "fmt"),
    [
        *((HOPPER, fmt) for fmt in FORMATS),
        *((AMPERE, fmt) for fmt in FORMATS if fmt is None or fmt.number in ("int4", "fp8")),
    ],
    indirect=["compiled"],
    ids=str,
)
def test_products_with_what_lies_around_them(compiled: Compiled, fmt: WeightFormat | None) -> None:
    """32 programs for 132 multiprocessors: the last ones join what others left to them.

    One row of int4 codes is too short to be shared.
    """
    from llmprof.engine.kernels.triton.fused_products import (
        triton_added_matvec_,
        triton_gated_matvec,
        triton_normed_matvec,
    )
    from llmprof.engine.kernels.triton.weight_plan import plan_matvec

    weight: torch.Tensor | PackedWeight = torch.empty(1024, 1024, dtype=torch.bfloat16)
    if fmt is not None:
        weight = PackedWeight.empty(fmt, torch.bfloat16, 1024, 1024, torch.empty)
    stored = Linear(weight).stored
    gains = torch.empty(1024, dtype=torch.bfloat16)
    for rows, kernel in ((1, "fused_one_row"), (16, "fused_dots")):
        x = torch.empty(rows, 1024, dtype=torch.bfloat16)
        squares = triton_added_matvec_(torch.empty_like(x), x, *stored)
        triton_gated_matvec(x, None, gains, 1e-5, 0.0, *stored, "silu")
        triton_normed_matvec(x, squares, gains, 1e-5, 0.0, *stored)
        ptx = compiled.ptx[kernel]
        assert in_one_piece(ptx, f"{WIDE_LOAD}|{WIDE_COPY}") >= 2
        shared = plan_matvec(rows, 1024, stored[0].shape[1] * stored[0].itemsize, 132).splits > 1
        assert (re.search(r"atom\S*\.acq_rel\.add", ptx) is not None) is shared
        assert ("mma" in ptx) is (rows > 1)


LARGE = {"gate_up": (28_672, 4096), "down": (4096, 14_336)}
"""[out_features, in_features] of a Llama 3 of 8 billion parameters."""


@has_cuobjdump
@pytest.mark.parametrize("compiled", [HOPPER], indirect=True)
@pytest.mark.parametrize("fmt", [*FORMATS, WeightFormat("int4", 128)], ids=str)
def test_one_row_of_a_large_model(
    compiled: Compiled, fmt: WeightFormat | None, tmp_path: Path
) -> None:
    """What a thread has on its way: 16 bytes of 8 rows, by loads of 16 bytes, and none of it spilled.

    Little's law: 4.8 TB/s times 600 ns are 2.9 MB. 4 programs of 128 threads on each of 132
    multiprocessors have 8.6 MB on their way when they start a turn. (fp8 has registers for 2.) Barriers change the layout of x and
    of scales, once for 8 rows: there were 22 in each turn where threads had one row each.
    """
    most_barriers = 19 if VERSION < (3, 7) else 23
    programs = 2 if fmt == WeightFormat("fp8") else 4
    if fmt == WeightFormat("int4", 128) and VERSION >= (3, 8):
        programs = (
            3  # one of its kernels takes 140 registers of a thread, where 128 leave room for 4
        )
    from llmprof.engine.kernels.triton.fused_products import (
        triton_added_matvec_,
        triton_gated_matvec,
    )

    for name, (out_features, in_features) in LARGE.items():
        shape = out_features, in_features
        weight: torch.Tensor | PackedWeight = torch.empty(
            shape, dtype=torch.bfloat16, device="meta"
        )
        if fmt is not None:
            weight = PackedWeight.empty(fmt, torch.bfloat16, *shape, on_meta)
        stored = Linear(weight).stored
        x = torch.empty(1, in_features, dtype=torch.bfloat16, device="meta")
        if name == "down":
            triton_added_matvec_(x.new_empty(1, out_features), x, *stored)
        else:
            squares = torch.empty(512, 1, device="meta")
            triton_gated_matvec(x, squares, x.new_empty(in_features), 1e-5, 0.0, *stored, "silu")
        ptx = compiled.ptx["fused_one_row"]
        assert len(re.findall(rf"{WIDE_LOAD}|{WIDE_FIRST}", ptx)) >= 2 * 8
        narrow = 16 if fmt is not None and fmt.group_size else 8
        assert len(re.findall(r"ld\.global(?!\S*\.v4)", ptx)) <= 2 * narrow
        assert ptx.count("bar.sync") <= (most_barriers if fmt is not None and fmt.group_size else 9)
        used = compiled.resources("fused_one_row", tmp_path)
        assert used["STACK"] == used["LOCAL"] == 0
        assert REGISTERS // (128 * used["REG"]) >= programs
        if fmt is not None and fmt.number in ("int8", "int4"):
            codes = 8 * 16 * (2 if fmt.number == "int4" else 1)
            assert ptx.count("prmt.b32") == codes, "one instruction makes a float of a code"


def on_meta(shape: tuple[int, ...], /, *, dtype: torch.dtype) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")


@has_cuobjdump
@pytest.mark.parametrize("compiled", [HOPPER], indirect=True)
@pytest.mark.parametrize("block_tokens", [16, 32_768])
def test_a_long_context(compiled: Compiled, block_tokens: int, tmp_path: Path) -> None:
    """32,768 tokens of one sequence: 8 KV heads in parts, all of them at once on 132 multiprocessors.

    Of their 228 KiB of shared memory a program takes as little as 4 of them leave to each. From triton 3.7
    on a thread takes 168 registers instead of 126, which leaves room for 3 programs.
    """
    from llmprof.engine.kernels.triton.attention_decode import triton_decode_attention

    blocks = 32_768 // block_tokens
    store = on_meta((2, blocks, 8, block_tokens, 128), dtype=torch.bfloat16)
    query = on_meta((1, 32, 128), dtype=torch.bfloat16)
    tables, lengths = (on_meta(shape, dtype=torch.int32) for shape in ((1, blocks), (1,)))
    triton_decode_attention(query, store, None, tables, lengths, 32_768)
    used = compiled.resources("_attend", tmp_path)
    assert used["STACK"] == used["LOCAL"] == 0
    assert REGISTERS // (128 * used["REG"]) >= (4 if VERSION < (3, 7) else 3)
    assert 4 * (used["SHARED"] + 38_912 + 1024) <= 228 << 10
    assert in_one_piece(compiled.ptx["_attend"], WIDE_COPY) >= 2 * 16


@pytest.mark.parametrize(
    ("compiled", "stored"),
    [(HOPPER, torch.bfloat16), (HOPPER, torch.int8), (AMPERE, torch.float8_e4m3fn)],
    indirect=["compiled"],
)
def test_attention(compiled: Compiled, stored: torch.dtype) -> None:
    from llmprof.engine.kernels.triton.attention_chunk import triton_chunk_attention
    from llmprof.engine.kernels.triton.attention_decode import triton_decode_attention

    store = torch.empty(2, 64, 8, 16, 128, dtype=stored)
    scales = torch.empty(2, 64, 8, 16) if stored is torch.int8 else None
    query = torch.empty(2, 32, 128, dtype=torch.bfloat16)
    tables = torch.zeros(2, 32, dtype=torch.int32)
    lengths = torch.ones(2, dtype=torch.int32)
    triton_decode_attention(query, store, scales, tables, lengths, 512)
    assert re.search(r"atom\S*\.acq_rel\.add", compiled.ptx["_attend"])
    assert "mma" in compiled.ptx["_attend"]
    assert in_one_piece(compiled.ptx["_attend"], WIDE_COPY) >= 4
    triton_chunk_attention(query, store, scales, tables, lengths, 7, 3.0)
    assert "mma" in compiled.ptx["_attend"]


@pytest.mark.parametrize("compiled", [AMPERE, HOPPER], indirect=True)
def test_what_lies_between_products(compiled: Compiled) -> None:
    """Of an 8B model's shapes; fp8 is made from bits on both, which not both convert themselves."""
    from llmprof.engine.kernels.triton.gate import triton_gelu_tanh_mul, triton_silu_mul
    from llmprof.engine.kernels.triton.kv_append import triton_kv_append_
    from llmprof.engine.kernels.triton.norm import triton_rms_norm, triton_rms_norm_heads_
    from llmprof.engine.kernels.triton.rotary import triton_rotate_
    from llmprof.engine.kernels.triton.turn_append import triton_turn_append_

    heads = torch.empty(2, 48, 128, dtype=torch.bfloat16)
    gate_up = torch.empty(2, 28672, dtype=torch.bfloat16)
    triton_silu_mul(gate_up)
    assert in_one_piece(compiled.ptx["_gate"], WIDE_LOAD) >= 2
    triton_gelu_tanh_mul(gate_up)
    triton_rms_norm(heads.view(2, -1)[:, :4096], heads.new_empty(4096), 1e-5, 1.0)
    assert in_one_piece(compiled.ptx["_norm"], WIDE_LOAD) >= 2
    triton_rms_norm_heads_(heads[:, :40], heads.new_empty(40, 128), 1e-5)
    triton_rotate_(heads[:, :40], heads.new_empty(2, 1, 128), heads.new_empty(2, 1, 128))
    assert in_one_piece(compiled.ptx["_rotate"], WIDE_LOAD) >= 2
    for stored in (torch.bfloat16, torch.int8, torch.float8_e4m3fn):
        store = torch.empty(2, 64, 8, 16, 128, dtype=stored)
        scales = torch.empty(2, 64, 8, 16) if stored is torch.int8 else None
        slots = torch.zeros(2, dtype=torch.int32)
        triton_kv_append_(heads[:, 32:].view(2, 2, 8, 128), store, scales, slots)
        # what is rounded to integers is not multiplied and added at once
        assert stored is torch.bfloat16 or "fma" not in compiled.ptx["_append"]
        angles = heads.new_empty(2, 1, 128)
        for gains in (None, heads.new_empty(40, 128)):
            triton_turn_append_(heads, gains, 1e-5, 0.0, angles, angles, store, scales, slots)
        assert in_one_piece(compiled.ptx["_turn_append"], r"ld\.global\S*\.v2\.b32") >= 2


@pytest.mark.parametrize("compiled", [AMPERE], indirect=True)
def test_reading(compiled: Compiled) -> None:
    from llmprof.ceilings import triton_read

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(triton_read, "_num_multiprocessors", lambda device: 132)
        triton_read.triton_read(torch.empty(1 << 16), 1)
    assert in_one_piece(compiled.ptx["_read"], WIDE_LOAD) >= 4
