"""Compiles the kernels of the cells into Triton's cache, beside the GPU tests, on cores that are idle.

python -m scripts.gpu.compile_ahead NUMBER OF CAPABILITY MULTIPROCESSORS MODEL FOLDER

A kernel takes about a second, and the cells start some hundred. Each process runs two layers of every
cell on torch's device `meta`, which has shapes and no numbers, and compiles its share of what is started
there, for the GPU and without touching it. What it misses, or cannot do, is compiled when it is needed:
a kernel that Triton refuses is named, and costs no other one.
"""

import dataclasses
import os
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar, cast
from unittest.mock import patch

import torch
from triton.backends.compiler import GPUTarget
from triton.runtime import driver
from triton.runtime.jit import JITFunction

from llmprof.architectures.source import resolve_model
from llmprof.ceilings import skinny, triton_read, weight_stream
from llmprof.ceilings.pool import Stream
from llmprof.ceilings.skinny import SkinnyProbe
from llmprof.ceilings.timing import Stopwatch
from llmprof.costs.fixed_work import step_shapes
from llmprof.engine import admission, linear, loading
from llmprof.engine.attention import chunk_kernels, decode_kernels
from llmprof.engine.description import ceiling_needs
from llmprof.engine.engine import Engine
from llmprof.engine.execution.decode_inputs import DecodeInputs, only_decodes
from llmprof.engine.execution.graph_step import whole_bucket
from llmprof.engine.kernels import fused, packed, pointwise
from llmprof.engine.kernels.triton import (
    attention_chunk,
    attention_decode,
    fused_products,
    quantize_rows,
    weight_matvec,
    weight_unpack,
)
from llmprof.engine.kv_cache import KvPool
from llmprof.engine.probe import NullProbe
from llmprof.engine.quantization.packed_weight import PackedWeight
from llmprof.engine.static_batch import StaticBatch
from llmprof.engine.step_batch import StepBatch
from llmprof.engine.workload import CeilingNeeds
from llmprof.schema.settings import ContextKind, ExecutionMode, RunConfig
from llmprof.store.settings_file import load_settings
from scripts.gpu.cells import GATE_MODEL, base_settings, cells, gate_settings
from scripts.gpu.job import in_one_line
from scripts.gpu.ncu_check import shallow_model
from scripts.gpu.tilings import start_each

META: Final = "meta"
_LARGEST_INT32: Final = 2**31 - 1
_BYTES_PER_S: Final = 4e12
_POOL_BYTES: Final = 1 << 30
_T = TypeVar("_T")


def main(words: list[str]) -> None:
    number, of, capability, multiprocessors = map(int, words[:4])
    model, folder = words[4], Path(words[5])
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    kept = folder / f"compile-ahead-{number}"
    kept.mkdir(parents=True, exist_ok=True)
    shares = Shares(number, of)
    with compiled_for(capability, multiprocessors, shares):
        path = shallow_model(model, kept)
        triton_read.triton_read(torch.empty(1 << 20, device=META), 1)
        for cell in cells("cuda:0"):
            settings = {**base_settings("cuda:0"), **cell.changes}
            _attempt(cell.name, run_on_meta, load_settings(path, settings, []))
        _attempt("tilings", start_each, META)
        gate = load_settings(GATE_MODEL, gate_settings("cuda:0"), [])
        _attempt("gate", run_on_meta, gate)
    sys.stderr.write(f"{shares.compiled} of {len(shares.seen)} kernels compiled\n")


def _attempt(name: str, run: Callable[[_T], None], given: _T) -> None:
    try:
        run(given)
    except Exception as error:  # noqa: BLE001 (whatever it is, the next one has its turn)
        sys.stderr.write(f"{name}: {in_one_line(error)}\n")


class Shares:
    """Which kernels this process compiles: each is some process's own, by the arguments it is started with."""

    def __init__(self, number: int, of: int) -> None:
        self._number = number
        self._of = of
        self.seen: set[str] = set()
        self.compiled = 0

    def takes(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Once for each that Triton would compile anew."""
        key = repr((name, [_kind(one) for one in args], sorted(kwargs.items())))
        if key in self.seen:
            return False
        self.seen.add(key)
        own = zlib.crc32(key.encode()) % self._of == self._number
        self.compiled += own
        return own


def _kind(argument: Any) -> object:
    """What Triton tells arguments apart by: alignment, ones, multiples of 16, and what 32 bits hold."""
    if isinstance(argument, torch.Tensor):
        return str(argument.dtype), argument.data_ptr() % 16 == 0
    if isinstance(argument, int):
        return argument == 1, argument % 16 == 0, abs(argument) > _LARGEST_INT32
    return type(argument).__name__


class Target:
    """In place of Triton's driver: says which GPU there is, and nothing else."""

    def __init__(self, capability: int) -> None:
        self._target = GPUTarget("cuda", capability, 32)

    def get_current_target(self) -> GPUTarget:
        return self._target

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0


class NoNumbers:
    """In place of weights: none are read."""

    def read_into(self, name: str, out: torch.Tensor, expert: int | None = None) -> None:
        pass

    def take_over(self, name: str, out: PackedWeight, expert: int | None = None) -> bool:
        return True


@contextmanager
def compiled_for(capability: int, multiprocessors: int, shares: Shares) -> Iterator[None]:
    """Inside, kernels of ours are compiled instead of launched, and `meta` is taken for such a GPU."""
    run, native = JITFunction.run, capability >= 89

    def compile_only(self: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> None:
        name = self.fn.__name__
        if not shares.takes(name, args, kwargs):
            return
        try:
            run(self, *args, grid=grid, warmup=True, **kwargs)
        except Exception as error:  # noqa: BLE001 (Triton's own are no RuntimeErrors)
            shares.compiled -= 1
            sys.stderr.write(f"{name} does not compile: {in_one_line(error)}\n")

    with _all_of(
        patch.object(JITFunction, "run", compile_only),
        patch.object(driver, "_active", Target(capability)),
        *(
            patch.object(module, "runs_triton", lambda device: device != "cpu")
            for module in (decode_kernels, chunk_kernels, pointwise, fused)
        ),
        patch.object(packed, "triton_trouble", lambda device: None),
        patch.object(admission, "check_memory", lambda *_, **__: None),
        patch.object(loading, "open_tensors", lambda *_: NoNumbers()),
        patch.object(weight_stream, "random_pool", _on_meta),
        patch.object(skinny, "random_tensor", _empty_on),
        patch.object(linear, "multiplies_fp8", lambda device: native),
        patch.object(triton_read, "_num_multiprocessors", lambda device: multiprocessors),
        *(
            patch.object(module, "converts_fp8", lambda device: native)
            for module in (
                *(attention_decode, attention_chunk, fused_products),
                *(quantize_rows, weight_matvec, weight_unpack),
            )
        ),
        *(
            patch.object(module, "multiprocessors", lambda device: multiprocessors)
            for module in (attention_decode, fused_products, weight_matvec)
        ),
    ):
        yield


@contextmanager
def _all_of(*patches: Any) -> Iterator[None]:
    for one in patches:
        one.start()
    try:
        yield
    finally:
        for one in reversed(patches):
            one.stop()


@torch.inference_mode()
def run_on_meta(config: RunConfig) -> None:
    """A prefill where the workload has one, and two decode steps: all that a round starts."""
    eager = config.execution.model_copy(update={"mode": ExecutionMode.EAGER})
    engine = Engine.load(
        resolve_model(config.model, weights=config.weights.source),
        config.model_copy(update={"execution": eager}),
        device=META,
        threads=1,
        host_available_bytes=1 << 40,
    )
    work = config.workload
    prompts = torch.zeros(work.batch, work.prompt_tokens, dtype=torch.int64)
    batch = engine.open_batch(prompts, output_tokens=work.output_tokens)
    filled = work.context is ContextKind.SYNTHETIC
    batch.restart(num_cached=work.prompt_tokens if filled else 0)
    graph = config.execution.mode is ExecutionMode.CUDA_GRAPH
    for _ in range(3):
        step = batch.next_step()
        if graph and only_decodes(step):
            step = _as_captured(step, engine, batch)
        engine.forward(step, batch.cache, batch.rotary, NullProbe())
        batch.advance()
    start_skinny(ceiling_needs(engine, config, step_shapes(config)[-1]), engine.dtype.torch)


class SteadyWatch:
    """In place of a stopwatch: every call runs as fast as a GPU of 4 TB/s would read its weights."""

    def rate(self, call: Callable[[], object], work: float) -> float:
        call()
        return _BYTES_PER_S


def start_skinny(needs: CeilingNeeds, dtype: torch.dtype) -> None:
    """The products that the live ceilings of the run consist of: they start before its first round."""
    if needs.skinny_rows is None:
        return
    stream = Stream(torch.empty(_POOL_BYTES // dtype.itemsize, dtype=dtype, device=META))
    SkinnyProbe(
        needs.skinny_shapes,
        needs.skinny_rows,
        stream,
        cast(Stopwatch, SteadyWatch()),
        working_set_bytes=needs.working_set_bytes,
        formats=needs.skinny_formats,
    )


def _empty_on(shape: tuple[int, ...], device: str, dtype: torch.dtype) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype, device=device)


def _on_meta(num_bytes: int, device: str, dtype: torch.dtype) -> torch.Tensor:
    return torch.empty(num_bytes // dtype.itemsize, dtype=dtype, device=device)


def _as_captured(step: StepBatch, engine: Engine, batch: StaticBatch) -> StepBatch:
    """With tables and contexts as long as those of the graph that would replay it."""
    assert isinstance(batch.cache, KvPool), "graphs are refused without a cache"
    turn = batch.rotary.at(step.positions)
    own = DecodeInputs.like(engine.decoder.embed(step.ids), turn, step).step
    return dataclasses.replace(own, runs=whole_bucket(own, batch.cache))


if __name__ == "__main__":
    main(sys.argv[1:])
