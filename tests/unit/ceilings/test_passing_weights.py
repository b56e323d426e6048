"""Weights that pass through the caches while a step without weights runs."""

import torch

from llmprof.ceilings.passing_weights import PASSING, PassingInReplays, WeightStream
from llmprof.engine.execution.step_program import recording
from llmprof.engine.probe import NullProbe, Probe
from llmprof.schema.cost import OpGroup

MIB = 1 << 20


class Entered(NullProbe):
    wants_groups = True

    def __init__(self) -> None:
        self.groups: list[OpGroup] = []

    def group_begin(self, group: OpGroup) -> None:
        self.groups.append(group)


def _step(probe: Probe) -> None:
    for group in (OpGroup.NORM, OpGroup.QKV_PROJECTION):
        probe.group_begin(group)
        probe.group_end()


def test_a_recorded_step_reads_them_before_each_product_without_python() -> None:
    stream = WeightStream(4 * MIB, "cpu")
    with recording() as recorder:
        _step(PassingInReplays(recorder, stream, {OpGroup.QKV_PROJECTION: MIB}))
    program = recorder.program()
    assert (program.num_native_calls, program.num_python_calls) == (1, 0)
    entered = Entered()
    program.replay(entered)
    assert entered.groups == [PASSING]


def test_a_part_of_the_stream_comes_round_again_after_its_own_size() -> None:
    stream = WeightStream(4 * MIB, "cpu").first(MIB)
    taken = [stream._stream.take(MIB // 8).data_ptr() for _ in range(3)]
    assert taken[0] == taken[2] != taken[1]
    assert isinstance(stream._stream.pool, torch.Tensor)
    assert stream._stream.pool.nbytes == MIB
