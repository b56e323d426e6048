"""A decode step of the engine as torch.compile makes it: fewer kernels, started one after another."""

import dataclasses
import time
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FunctionType

import torch

from llmprof import units
from llmprof.engine.execution.compilations import Compilations
from llmprof.engine.execution.decode_inputs import DecodeInputs
from llmprof.engine.execution.graph_step import whole_bucket
from llmprof.engine.kv_cache import KvCache, KvPool
from llmprof.engine.model import Decoder
from llmprof.engine.probe import NullProbe, Probe, wants_groups
from llmprof.engine.rope import Turn
from llmprof.engine.step_batch import SequenceRun, StepBatch
from llmprof.errors import CapabilityError, LlmprofError
from llmprof.store.progress import NullProgress, Progress

_Compiled = Callable[[Decoder, KvCache, torch.Tensor, Turn, StepBatch], torch.Tensor]


@dataclass(frozen=True, slots=True)
class CompiledStep:
    """See `replay_runner.RecordedStep`."""

    inputs: DecodeInputs
    function: _Compiled
    decoder: Decoder
    cache: KvCache
    fixed: StepBatch
    """The step as it was compiled: what its tensors hold changes, and nothing else."""

    def replay(self, probe: Probe) -> torch.Tensor:
        """Where somebody looks between groups, the engine's kernels one by one.

        A kernel that torch.compile made belongs to several groups: their sum is longer than the step,
        and is scaled to it.
        """
        self.cache.begin_step(self.fixed)
        self.decoder.attention.begin_step(self.fixed)
        x, turn = self.inputs.x, self.inputs.turn
        if wants_groups(probe):
            return self.decoder.through_layers(x, turn, self.fixed, self.cache, probe)
        return self.function(self.decoder, self.cache, x, turn, self.fixed)


class StepCompiler:
    """Compiles one function for each shape of a step, whole or not at all.

    Its weights and its cache are arguments: another decoder or cache of the same shape runs the same
    code, and torch's guards see to it that one of another shape does not.
    """

    def __init__(
        self, compilations: Compilations | None = None, progress: Progress | None = None
    ) -> None:
        """`compilations` are told, and name the backend."""
        self.compilations = compilations or Compilations()
        self._progress = progress or NullProgress()
        self._functions: dict[Hashable, _Compiled] = {}

    def __call__(self, decoder: Decoder, cache: KvCache, inputs: DecodeInputs) -> CompiledStep:
        """Run a step once, which compiles it; it writes the keys and values that replays write again.

        Raises:
            CapabilityError: torch.compile cannot compile it whole.
        """
        fixed = dataclasses.replace(inputs.step, runs=_as_compiled(inputs.step, decoder, cache))
        (run,) = fixed.runs
        shape = (fixed.num_rows, fixed.block_tables.shape[1], run, torch.get_num_threads())
        new = shape not in self._functions
        if new:
            rows = units.number_of(fixed.num_rows, "sequence")
            self._progress.note(f"compiling the decode step for {rows}")
            self._functions[shape] = self._new_function()
        step = CompiledStep(inputs, self._functions[shape], decoder, cache, fixed)
        self._run_once(step, new=new)
        return step

    def _new_function(self) -> _Compiled:
        """With code of its own: torch keeps what it compiled, and what it gave up, by code object."""
        code = _decode_step.__code__.replace(co_name=f"decode_step_{len(self._functions)}")
        function = FunctionType(code, _decode_step.__globals__)
        compiled: _Compiled = torch.compile(
            function, backend=self.compilations.compile, fullgraph=True, dynamic=False
        )
        return compiled

    def _run_once(self, step: CompiledStep, *, new: bool) -> None:
        before, begin_s = self.compilations.count, time.perf_counter()
        with _refused_in_one_line():
            step.replay(NullProbe())
        took_s = time.perf_counter() - begin_s
        if self.compilations.count > before:
            self.compilations.seconds += took_s
            self._progress.note(f"compiled it in {units.seconds(took_s)}")
        elif new and not torch._C._len_torch_dispatch_stack():
            raise CapabilityError(
                "execution.mode=compiled: torch.compile left the decode step as it is",
                remedy="Unset TORCH_COMPILE_DISABLE and TORCHDYNAMO_DISABLE, or set execution.mode=eager",
            )


@contextmanager
def _refused_in_one_line() -> Iterator[None]:
    """Compilers fail in many ways.

    Raises:
        CapabilityError: with what one of them said first.
    """
    try:
        yield
    except (torch.OutOfMemoryError, LlmprofError):
        raise
    except Exception as error:
        reason = (str(error).strip() or type(error).__name__).partition("\n")[0]
        raise CapabilityError(
            f"execution.mode=compiled: torch.compile cannot compile the decode step ({reason})",
            remedy="Set execution.mode=eager or cuda_graph",
        ) from error


def _decode_step(
    decoder: Decoder, cache: KvCache, x: torch.Tensor, turn: Turn, step: StepBatch
) -> torch.Tensor:
    """What is compiled. The copy of x, which the layers add to, is part of the first kernel."""
    return decoder.through_layers(x.clone(), turn, step, cache, NullProbe())


def _as_compiled(step: StepBatch, decoder: Decoder, cache: KvCache) -> tuple[SequenceRun]:
    """All rows, and as many tokens as they will ever attend to.

    A kernel that follows block tables only plans for them, and reads those that are there. Others
    read a bucket of tokens, and a mask made from the context lengths hides what is not there.
    """
    assert isinstance(cache, KvPool), "without a cache no step has the shape of another"
    if decoder.attention.decode_kernel is None:
        return whole_bucket(step, cache)
    longest = step.block_tables.shape[1] * cache.block_tokens
    (run,) = step.runs
    return (
        dataclasses.replace(
            run,
            num_sequences=step.num_sequences,
            cached_tokens=longest - 1,
            same_context=False,
        ),
    )
