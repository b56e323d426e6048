"""Formulas of single ops, against cases from the public record."""

from llmprof.costs.ops import attention_flops, causal_pairs, dense_pairs, linear_flops
from llmprof.schema.cost import Phase, SequenceShape, StepShape


def shape(*sequences: tuple[int, int, int]) -> StepShape:
    return StepShape(
        phase=Phase.MIXED,
        sequences=tuple(
            SequenceShape(count=count, new_tokens=new, cached_tokens=cached)
            for count, new, cached in sequences
        ),
        logit_rows=0,
    )


def test_a_multiply_add_is_two() -> None:
    assert linear_flops(3, 5, 7) == 210


def test_attention_is_two_products_and_counted_once() -> None:
    batch, heads, tokens, dim = 2, 5, 9, 4
    assert attention_flops(batch * tokens * tokens, heads, 2 * dim) == 12_960


def test_keys_and_values_of_different_sizes() -> None:
    assert attention_flops(34, 1, 8 + 16) == 1_632
    assert attention_flops(1, 128, 192 + 128) == 81_920


def test_pairs_of_a_mixed_step() -> None:
    mixed = shape((1, 4, 6), (3, 1, 10))
    assert causal_pairs(mixed) == (7 + 8 + 9 + 10) + 3 * 11
    assert dense_pairs(mixed) == 4 * 10 + 3 * 11


def test_ragged_decode_batch() -> None:
    ragged = shape((1, 1, 0), (1, 1, 1), (1, 1, 2), (1, 1, 3))
    assert causal_pairs(ragged) == dense_pairs(ragged) == 10
