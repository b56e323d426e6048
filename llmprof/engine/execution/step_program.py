"""A decode step as a list of native calls, recorded once and replayed without Python in between.

What a CUDA graph is on a GPU, for a CPU: every kernel of ours is `void entry(int64_t *arguments)`,
so a step is a table of entries and arguments that a small compiled loop goes through. It matters
because a step streams its weights through the second-level cache: when Python comes back from a
kernel, its own code and data are gone, and an op costs 10 to 30 us of waiting for memory instead of
the 3 us that the same op costs in a tight loop.
"""

import ctypes
import functools
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import torch
from llvmlite import ir
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode

from llmprof.engine.kernels.launch import recorded_launches
from llmprof.engine.kernels.native import KernelBody, NativeKernel, compile_kernel
from llmprof.engine.kernels.vector_ir import I64, index_constant
from llmprof.engine.probe import NullProbe, OpProbe, Probe, wants_groups, wants_ops
from llmprof.schema.cost import OpGroup, StepShape

_TABLE, _COUNT, _NUM_ARGUMENTS = range(3)

_ALLOCATIONS: Final = {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided"}

_Call = Callable[[], object]
_Item = tuple[OpGroup, str | None, int | _Call]
"""Group, name of a kernel of ours (None for what torch dispatches), and an entry or a call."""


class Recording(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Runs a step as usual and writes down what it did; also the probe that learns the groups.

    Launches of kernels of ours become entries of a table. An operator of torch becomes a call from
    Python that repeats it with the same tensors and copies the result to where it was. Every tensor
    on the way is kept, so that its address stays its own.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._group = OpGroup.OTHER
        self._op = ""
        self._items: list[_Item] = []
        self._entries: list[tuple[int, Any]] = []
        self._kept: list[object] = []
        self._paused = False

    def launched(self, kernel: NativeKernel, arguments: tuple[int, ...], *, shared: bool) -> None:
        if self._paused:
            return
        entry = kernel.recorded(*arguments, shared=shared)
        if entry is None:
            start = kernel if shared else kernel.alone
            self._items.append((self._group, self._op, functools.partial(start, *arguments)))
            return
        self._kept.append(kernel)
        self._items.append((self._group, self._op, len(self._entries)))
        self._entries.append(entry)

    def repeat(self, call: _Call) -> None:
        """Have `call` made at this place of every replay."""
        self._items.append((self._group, None, call))

    @contextmanager
    def paused(self) -> Iterator[None]:
        """What runs inside leaves no trace."""
        self._paused = True
        try:
            yield
        finally:
            self._paused = False

    def __torch_dispatch__(
        self,
        func: OpOverload[..., Any],
        types: tuple[type, ...],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Run one operator, keep what it worked with, and have torch's own ones repeated."""
        kwargs = kwargs or {}
        self._op = str(func.overloadpacket)
        out = func(*args, **kwargs)
        if self._paused:
            return out
        self._kept.append((args, kwargs, out))
        if func.namespace != "llmprof" and _moves_data(func, args, out):
            self.repeat(_repetition(func, args, kwargs, out))
        return out

    def step_begin(self, shape: StepShape) -> None:
        pass

    def step_end(self) -> None:
        pass

    def group_begin(self, group: OpGroup) -> None:
        self._group = group

    def group_end(self) -> None:
        self._group = OpGroup.OTHER

    def program(self) -> "StepProgram":
        return StepProgram(self._items, self._entries, self._kept)


@contextmanager
def recording() -> Iterator[Recording]:
    """Record what runs inside."""
    recorder = Recording()
    with recorded_launches(recorder), recorder:
        yield recorder


def recorded_call(call: _Call) -> Callable[[], None]:
    """Run `call` once; what comes back replays it on the same tensors."""
    with recording() as recorder:
        call()
    return functools.partial(recorder.program().replay, NullProbe())


class StepProgram:
    """A recorded step. Its inputs and its result are the tensors that it was recorded with."""

    def __init__(
        self,
        items: list[_Item],
        entries: list[tuple[int, Any]],
        kept: list[object],
    ) -> None:
        """From the items of a step in order: numbers of native entries, and calls from Python."""
        self._kept = kept, entries
        pairs = [(address, ctypes.addressof(arguments)) for address, arguments in entries]
        self._table = torch.tensor(pairs, dtype=torch.int64).view(-1, 2)
        self.num_native_calls = len(entries)
        self.num_python_calls = len(items) - len(entries)
        self._items = items
        unnamed = [(OpGroup.OTHER, item) for _, _, item in items]
        self._whole = [call for _, call in self._merged(unnamed)]
        self._by_group = self._merged([(group, item) for group, _, item in items])

    def replay(self, probe: Probe) -> None:
        """Run the step; between ops or groups only where somebody looks, else as one of `OTHER`."""
        if wants_ops(probe):
            self._replay_by_op(probe)
            return
        if wants_groups(probe):
            for group, call in self._by_group:
                probe.group_begin(group)
                call()
                probe.group_end()
            return
        for call in self._whole:
            call()

    def _replay_by_op(self, probe: OpProbe) -> None:
        """Kernel by kernel; what is repeated from Python is seen by torch's own means."""
        for group, name, item in self._items:
            call = self._native(item, item + 1) if isinstance(item, int) else item
            probe.group_begin(group)
            if name is None:
                call()
            else:
                probe.op_begin(name)
                call()
                probe.op_end()
            probe.group_end()

    def _merged(self, items: list[tuple[OpGroup, int | _Call]]) -> list[tuple[OpGroup, _Call]]:
        """Neighbouring native entries of one group become one call."""
        calls: list[tuple[OpGroup, _Call]] = []
        first = end = -1
        group = OpGroup.OTHER

        def finish() -> None:
            if end > first:
                calls.append((group, self._native(first, end)))

        for item_group, item in items:
            if isinstance(item, int) and item == end and item_group is group:
                end += 1
                continue
            finish()
            group = item_group
            if isinstance(item, int):
                first, end = item, item + 1
            else:
                first = end = -1
                calls.append((group, item))
        finish()
        return calls

    def _native(self, first: int, end: int) -> _Call:
        table = self._table[first:end]
        return functools.partial(_go_through().alone, table.data_ptr(), end - first)


def _moves_data(func: OpOverload[..., Any], args: tuple[Any, ...], out: Any) -> bool:
    """Whether an operator must be repeated: not if it allocates, or describes old memory anew.

    What it returned tells, not what it is: `reshape` and `to` copy only if they must.
    """
    if func._schema.is_mutable:
        return True
    if func.overloadpacket.__name__ in _ALLOCATIONS:
        return False
    old = {tensor.untyped_storage().data_ptr() for tensor in _tensors(args)}
    return any(tensor.untyped_storage().data_ptr() not in old for tensor in _tensors(out))


def _tensors(value: Any) -> list[torch.Tensor]:
    """The tensors in a value, or in the tuples and lists of it."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (tuple, list)):
        return [tensor for item in value for tensor in _tensors(item)]
    return []


def _repetition(
    func: OpOverload[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], out: Any
) -> _Call:
    """The same operator on the same tensors, its results where they were before."""
    repeat = functools.partial(func, *args, **kwargs)
    if func._schema.is_mutable:
        return repeat

    def repeat_into_place() -> None:
        for to, new in zip(_tensors(out), _tensors(repeat()), strict=True):
            to.copy_(new)

    return repeat_into_place


@functools.cache
def _go_through() -> NativeKernel:
    return compile_kernel("go_through", _NUM_ARGUMENTS, _call_each)


def _call_each(body: KernelBody) -> None:
    """For pairs of addresses in a table: call the first as a function of the second."""
    builder, table = body.builder, body.pointer(_TABLE, I64)
    entry_type = ir.FunctionType(ir.VoidType(), [I64.as_pointer()])
    with body.code.loop(index_constant(0), body.integer(_COUNT), 1) as loop:
        place = builder.mul(loop.index, index_constant(2))
        entry, arguments = (
            builder.load(builder.gep(table, [builder.add(place, index_constant(n))]))
            for n in (0, 1)
        )
        function = builder.inttoptr(entry, entry_type.as_pointer())
        builder.call(function, [builder.inttoptr(arguments, I64.as_pointer())])
