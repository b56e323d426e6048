"""Products of a few rows: 10^9 weights per second of each loop nest, and of torch's bf16 product.

    python tests/benchmarks/matvec.py [--formats bf16 fp8 ...] [--rows 1 2 3 4 8 16]
        [--shape OUT IN] [--mib 512] [--rounds 9] [--threads N]

Matrices of the shape are multiplied in turn, --mib of each format in all: more than the last-level
cache to read from memory, 1 and one thread to read from a core's own. The nest that the engine takes
is named first. Best of the rounds, in which all of a line's rivals take turns.

Passes (exit code 0) where no other nest is more than 10 % faster than the engine's choice.
"""

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import torch
from torch.nn import functional

from llmprof.costs.weight_formats import WeightFormat
from llmprof.engine.kernels.matvec import compile_matvec, fitting_nests, run_matvec
from llmprof.engine.kernels.matvec_plan import MatvecVariant
from llmprof.engine.kernels.memory import huge_empty
from llmprof.engine.kernels.native import NativeKernel
from llmprof.engine.quantization.packed_weight import PackedWeight
from llmprof.instruments.contention import ContentionMeter
from llmprof.instruments.snapshot import resolve_threads

FORMATS: Final = {
    one.name: one
    for one in (
        WeightFormat("bf16"),
        WeightFormat("fp8"),
        WeightFormat("int8"),
        WeightFormat("int8", 32),
        WeightFormat("int4", 32, symmetric=True),
        WeightFormat("int4", 32, symmetric=False),
    )
}
TOLERATED: Final = 1.10
Product = Callable[[int], torch.Tensor]
"""By one of the matrices."""
Weight = tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]
"""Codes, scales and minimums."""


def main() -> int:
    arguments = _arguments()
    threads = resolve_threads(arguments.threads)
    torch.set_num_threads(threads)
    meter = ContentionMeter(threads)
    shape = tuple(arguments.shape)
    print(f"{threads} threads, matrices {list(shape)}, {arguments.mib} MiB; 10^9 weights/s")
    passed = True
    for name in arguments.formats:
        for rows in arguments.rows:
            rates = _rates(FORMATS[name], rows, arguments)
            chosen, *others = (rate for nest, rate in rates.items() if nest != "torch")
            fine = all(rate <= TOLERATED * chosen for rate in others)
            passed = passed and fine
            told = "  ".join(f"{nest} {rate / 1e9:5.1f}" for nest, rate in rates.items())
            print(f"  {name:14s} {rows:2d} rows  {told}{'' if fine else '   <-'}", flush=True)
    waited = meter.stop().run_queue_fraction
    print(f"waited for a core: {'unknown' if waited is None else f'{waited:.1%}'}")
    return 0 if passed else 1


@torch.inference_mode()
def _rates(fmt: WeightFormat, rows: int, arguments: argparse.Namespace) -> dict[str, float]:
    """Weights per second by rival, the engine's choice first."""
    out_features, in_features = arguments.shape
    count = max(1, (arguments.mib << 20) // fmt.stored_bytes(out_features, in_features))
    rivals = dict(_rivals(fmt, rows, (out_features, in_features), count))
    best = dict.fromkeys(rivals, 0.0)
    for _ in range(arguments.rounds):
        for name, product in rivals.items():
            seconds = _pass_s(product, count)
            best[name] = max(best[name], count * out_features * in_features / seconds)
    return best


def _rivals(
    fmt: WeightFormat, rows: int, shape: tuple[int, int], count: int
) -> Iterator[tuple[str, Product]]:
    x = torch.randn(rows, shape[1]).to(torch.bfloat16)
    weights = [_random(fmt, shape) for _ in range(count)]
    variant = MatvecVariant(fmt, shape[1], rows, "bf16", has_bias=False, few_outputs=False)
    for nest in fitting_nests(variant):
        product = _product(compile_matvec(variant, nest), x, weights)
        yield nest.__name__.rpartition("_")[2], product
    if not fmt.packed:
        yield "torch", lambda one: functional.linear(x, weights[one][0])


def _product(kernel: NativeKernel, x: torch.Tensor, weights: Sequence[Weight]) -> Product:
    return lambda one: run_matvec(kernel, x, *weights[one], None)


def _random(fmt: WeightFormat, shape: tuple[int, int]) -> Weight:
    """Which numbers they are does not matter to a kernel's time."""
    if not fmt.packed:
        codes = huge_empty(shape, torch.bfloat16)
        return codes.normal_(), None, None
    packed = PackedWeight.empty(fmt, torch.bfloat16, *shape, torch.empty)
    packed.codes.view(torch.uint8).random_(0, 120)
    packed.scales.fill_(0.01)
    if packed.minimums is not None:
        packed.minimums.fill_(-0.05)
    return packed.codes, packed.scales, packed.minimums


def _pass_s(product: Product, count: int) -> float:
    start = time.perf_counter()
    for one in range(count):
        product(one)
    return time.perf_counter() - start


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--formats", nargs="+", choices=FORMATS, default=list(FORMATS))
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 2, 3, 4, 8, 16])
    parser.add_argument("--shape", type=int, nargs=2, default=[2048, 2048])
    parser.add_argument("--mib", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, default=None)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
