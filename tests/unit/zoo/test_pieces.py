"""Planted pieces really do the work that they state."""

import torch

from llmprof.ceilings.pool import Stream
from llmprof.ceilings.read_kernels import ReadKernel
from llmprof.instruments.op_recorder import OpRecorder
from tests.zoo import pieces
from tests.zoo.workload import PlantedWorkload


def test_products_are_the_ones_that_torch_dispatches() -> None:
    piece = pieces.multiply("fp32", "cpu", (4, 8, 16), calls=3)
    workload = PlantedWorkload([piece], device="cpu", threads=1, working_set_bytes=1, steps=1)
    with OpRecorder() as recorder:
        workload.run_round(recorder)
    (step,) = recorder.steps()
    assert piece.cost is not None
    assert sum(op.flops or 0 for op in step.ops) == piece.cost.flops == 3 * 2 * 4 * 8 * 16
    assert piece.cost.traffic.weights == 3 * 4 * 8 * 16


def test_every_tiny_op_is_one_operator() -> None:
    piece = pieces.tiny_ops(31, "cpu")
    workload = PlantedWorkload([piece], device="cpu", threads=1, working_set_bytes=1, steps=1)
    with OpRecorder() as recorder:
        workload.run_round(recorder)
    (step,) = recorder.steps()
    assert piece.cost is not None
    assert sum(op.calls for op in step.ops) == piece.cost.calls == 31


def test_a_read_takes_the_next_bytes_of_the_stream_and_states_every_pass() -> None:
    seen: list[tuple[int, int]] = []
    stream = Stream(torch.arange(4096, dtype=torch.float32))
    kernel = ReadKernel("fake", lambda data, passes: seen.append((int(data[0]), passes)))
    piece = pieces.read(kernel, stream, 4 * 1024, passes=5)
    piece.run()
    piece.run()
    assert seen == [(0, 5), (1024, 5)]
    assert piece.cost is not None
    assert piece.cost.traffic.weights == 5 * 4 * 1024


def test_fewer_threads_inside_a_round_are_given_back() -> None:
    threads = torch.get_num_threads()
    seen: list[int] = []
    piece = pieces.Piece("look", lambda: seen.append(torch.get_num_threads()))
    workload = PlantedWorkload(
        [piece], device="cpu", threads=threads, working_set_bytes=1, steps=1, threads_inside=1
    )
    workload.run_round(OpRecorder())
    assert seen == [1]
    assert torch.get_num_threads() == threads
