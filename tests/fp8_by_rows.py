"""Whether torch multiplies fp8 with a scale for each row on a CPU too: 2.11 does on GPUs only."""

import pytest
import torch

from llmprof.engine.kernels.fp8_products import scaled_product


def _on_a_cpu() -> bool:
    ones = torch.ones(16, 16)
    codes = ones.to(torch.float8_e4m3fn)
    try:
        scaled_product(codes, ones[:, :1], codes, ones[0], None)
    except RuntimeError:
        return False
    return True


fp8_by_rows = pytest.mark.skipif(
    not _on_a_cpu(), reason=f"torch {torch.__version__} has no scales of rows on a CPU"
)
