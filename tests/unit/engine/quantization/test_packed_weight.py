import pytest
import torch

from llmprof.costs.weight_formats import WeightFormat
from llmprof.engine.quantization.packed_weight import PackedWeight
from tests.packed_weights import FORMATS


@pytest.mark.parametrize("fmt", FORMATS, ids=lambda fmt: fmt.name)
def test_its_bytes_are_those_that_costs_count(fmt: WeightFormat) -> None:
    packed = PackedWeight.empty(fmt, torch.bfloat16, 12, 192, torch.empty)
    assert packed.shape == (12, 192)
    assert packed.nbytes == fmt.stored_bytes(12, 192)


def test_a_part_is_a_view() -> None:
    fmt = WeightFormat("int4", 32, symmetric=False)
    packed = PackedWeight.empty(fmt, torch.bfloat16, 12, 64, torch.empty)
    part = packed.part(3, 4)
    assert part.shape == (4, 64)
    assert part.nbytes == fmt.stored_bytes(4, 64)
    assert part.minimums is not None
    assert packed.minimums is not None
    part.codes.fill_(7)
    part.minimums.fill_(2)
    assert (packed.codes[3:7] == 7).all()
    assert (packed.minimums[3:7] == 2).all()
