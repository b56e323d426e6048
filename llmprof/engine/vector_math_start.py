"""The first call of MKL's vector mathematics in a process, made by one thread alone."""

import torch


def begin_vector_math() -> None:
    """Have every later exp, cos or tanh of torch as exact as it should be.

    Where several threads make the first call at once, all but the first of them may compute their share
    of it in MKL's mode of half the digits (torch 2.13, MKL 2024.2: cosines off by 1.5e-4 in 9 of 34
    processes, and in none of 68 that began with one number).
    """
    torch.zeros(1).exp()
