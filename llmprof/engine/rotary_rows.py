"""The order of the rows of a query or key projection, for rotations of halves.

Some checkpoints are made for rotations of adjacent channels (2i against 2i + 1). With their rows in
another order, the same numbers come of rotating channel i against i + rotary_dim / 2: products of
queries and keys do not depend on the order of channels that both have.
"""

import numpy as np
import numpy.typing as npt


def rotates(name: str) -> bool:
    """Whether the rows of this tensor are channels of queries or keys."""
    return name.rpartition(".")[0].endswith(("q_proj", "k_proj"))


def halves_of_adjacent_pairs(rows: int, head_dim: int, rotary_dim: int) -> npt.NDArray[np.intp]:
    """Which stored row each row is, [rows]: per head first the even ones, then the odd ones.

    Of each head's `head_dim` rows only the first `rotary_dim` change places.
    """
    heads = np.arange(rows).reshape(-1, head_dim)
    pairs = heads[:, :rotary_dim].reshape(len(heads), -1, 2)
    halves = pairs.swapaxes(1, 2).reshape(len(heads), -1)
    return np.concatenate((halves, heads[:, rotary_dim:]), axis=1).reshape(-1)
