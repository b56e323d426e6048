"""What devices exchange in a step, counted with a pencil."""

import pytest

from llmprof.analysis.rates import Rates
from llmprof.architectures.paper_manifest import paper_manifest
from llmprof.architectures.presets import preset_config
from llmprof.costs.collectives import ALL_GATHER, ALL_REDUCE, all_reduce, collective_s
from llmprof.costs.options import CostOptions
from llmprof.costs.step import step_cost
from llmprof.schema.ceilings import CollectiveCeiling
from llmprof.schema.cost import Phase, SequenceShape, StepShape

GLOO = CollectiveCeiling(
    op="all_reduce",
    backend="gloo",
    world_size=2,
    alpha_s=10e-6,
    bytes_per_s=1e9,
    spread=0,
    sizes_bytes=(1024,),
)


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
    exchanged_s = 65 * 10e-6 + 65 * 16 * 4096 * 2 / 1e9
    assert collective_s(ops[ALL_REDUCE], GLOO) == pytest.approx(exchanged_s)


def test_links_twice_as_fast_halve_an_exchange_whole() -> None:
    """The start of it too: the factor that makes ceilings agree with a median step is on every link."""
    rates = Rates(1e10, 1e12, "bf16", {"fp32": 1e11}, collectives={ALL_REDUCE: GLOO}).scaled(2)
    op = all_reduce(4, 1000, CostOptions())
    assert collective_s(op, rates.collectives[ALL_REDUCE]) == pytest.approx(
        (4 * 10e-6 + 4 * 2000 / 1e9) / 2
    )
    assert (rates.read_bytes_per_s, rates.matmul_flops_per_s) == (2e10, 2e12)
    assert rates.other_flops_per_s == {"fp32": 2e11}
