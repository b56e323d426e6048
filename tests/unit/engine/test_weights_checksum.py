import pytest
import torch

from llmprof.engine.weights_checksum import weights_checksum

DTYPES = [torch.float32, torch.bfloat16, torch.int8, torch.float8_e4m3fn]


def a_tensor(dtype: torch.dtype, size: int = 21) -> torch.Tensor:
    """Odd sizes leave a rest of less than a word."""
    raw = torch.randint(256, (size * dtype.itemsize,), generator=torch.Generator().manual_seed(1))
    return raw.to(torch.uint8).view(dtype).view(3, -1)


def sum_by_hand(tensor: torch.Tensor) -> int:
    raw = tensor.view(-1).view(torch.uint8).numpy().tobytes()
    whole = len(raw) // 8 * 8
    words = sum(
        int.from_bytes(raw[at : at + 8], "little", signed=True) for at in range(0, whole, 8)
    )
    return words + sum(raw[whole:])


@pytest.mark.parametrize("dtype", DTYPES)
def test_words_and_the_bytes_that_are_left_are_added_up(dtype: torch.dtype) -> None:
    tensor = a_tensor(dtype)
    assert weights_checksum([tensor]) == f"{sum_by_hand(tensor) % 2**64:016x}"


@pytest.mark.parametrize("dtype", DTYPES)
def test_one_bit_anywhere_is_seen(dtype: torch.dtype) -> None:
    tensors = [a_tensor(dtype), a_tensor(dtype, 33)]
    before = weights_checksum(tensors)
    for tensor in tensors:
        raw = tensor.view(-1).view(torch.uint8)
        for at in (0, 8, len(raw) - 1):
            for bit in (0, 7):
                raw[at] ^= 1 << bit
                assert weights_checksum(tensors) != before
                raw[at] ^= 1 << bit
    assert weights_checksum(tensors) == before


def test_tensors_that_have_changed_places_are_seen() -> None:
    one, other = a_tensor(torch.bfloat16), a_tensor(torch.bfloat16, 33)
    assert weights_checksum([one, other]) != weights_checksum([other, one])
