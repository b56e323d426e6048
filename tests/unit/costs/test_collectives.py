"""What devices exchange in a step, counted with a pencil."""

import pytest

from llmprof.architectures.paper_manifest import paper_manifest
from llmprof.architectures.presets import preset_config
from llmprof.costs.collectives import ALL_GATHER, ALL_REDUCE, collective_s
from llmprof.costs.options import CostOptions
from llmprof.costs.step import step_cost
from llmprof.schema.ceilings import CollectiveCeiling
from llmprof.schema.cost import Phase, SequenceShape, StepShape


def test_a_decode_step_on_two_devices() -> None:
    """Llama 3.1 8B, 16 sequences: after the embedding and after each half of 32 layers all hidden
    states are summed; each device has half of the logits, and both need all."""
    llama = preset_config("llama-3.1-8b")
    sequences = (SequenceShape(count=16, new_tokens=1, cached_tokens=512),)
    shape = StepShape(phase=Phase.DECODE, sequences=sequences, logit_rows=16)
    cost = step_cost(llama, paper_manifest(llama), shape, CostOptions(tensor_parallel=2))
    ops = {op.name: op for op in cost.ops}
    assert ops[ALL_REDUCE].calls == 65
    assert ops[ALL_REDUCE].exchanged_bytes == 65 * 16 * 4096 * 2
    assert ops[ALL_GATHER].calls == 1
    assert ops[ALL_GATHER].exchanged_bytes == 16 * 128_256 // 2 * 2
    # each of them chooses among all the logits
    assert ops["sampling"].traffic.activations == 16 * 128_256 * 2
    ceiling = CollectiveCeiling(
        op="all_reduce",
        backend="gloo",
        world_size=2,
        alpha_s=10e-6,
        bytes_per_s=1e9,
        spread=0,
        sizes_bytes=(1024,),
    )
    exchanged_s = 65 * 10e-6 + 65 * 16 * 4096 * 2 / 1e9
    assert collective_s(ops[ALL_REDUCE], ceiling) == pytest.approx(exchanged_s)
