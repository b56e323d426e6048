"""The pages of a step in the form that FlashInfer plans by: rows of a sparse matrix.

Counts are needed on the host; where the pages are stays on the device.
"""

from dataclasses import dataclass
from itertools import accumulate

import numpy as np
import torch

from llmprof.engine.step_batch import StepBatch


@dataclass(frozen=True, slots=True)
class StepPages:
    bounds: torch.Tensor
    """On the host: where each sequence's rows start, and the last one's end [sequences + 1] int32."""
    indptr: torch.Tensor
    """On the host: likewise for its pages in `indices`."""
    indices: torch.Tensor
    """On the device: the pages that hold a token of a sequence, in order [indptr[-1]] int32."""
    last_page_len: torch.Tensor
    """On the host: tokens in each sequence's last page, at least 1 [sequences] int32."""
    page_tokens: int


def step_pages(step: StepBatch, page_tokens: int) -> StepPages:
    """Waits for the device only where the host does not know the lengths of contexts."""
    lens = step.host_context_lens
    contexts = np.array(step.context_lens.tolist() if lens is None else lens, dtype=np.int64)
    counts = -(-contexts // page_tokens)
    ends = np.cumsum(counts)
    row = np.repeat(np.arange(len(counts)), counts)
    column = np.arange(ends[-1]) - np.repeat(ends - counts, counts)
    tables = step.block_tables
    places = torch.from_numpy(row * tables.shape[1] + column).to(tables.device)
    new_tokens = [run.new_tokens for run in step.runs for _ in range(run.num_sequences)]
    return StepPages(
        bounds=torch.tensor([0, *accumulate(new_tokens)], dtype=torch.int32),
        indptr=torch.tensor([0, *ends.tolist()], dtype=torch.int32),
        indices=tables.flatten().index_select(0, places),
        last_page_len=torch.from_numpy(((contexts - 1) % page_tokens + 1).astype(np.int32)),
        page_tokens=page_tokens,
    )
