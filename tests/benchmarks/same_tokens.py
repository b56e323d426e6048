"""Every combination of attention, KV layout, batching and execution against another implementation.

    python -m tests.benchmarks.same_tokens [--tokens 48]

The demo model in fp32 continues three prompts greedily; the expected ids come from `transformers`.
Prints one line per combination; exit code 1 if a token differs. A cache of `none` keeps no address
that a recorded step could replay, so it is not compiled.
"""

import argparse
import itertools
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from llmprof.engine.engine import Engine
from llmprof.engine.sampling import GreedySampler
from llmprof.schema.settings import AttentionKind, BatchingPolicy, ExecutionMode, KvLayout
from tests.known_tokens import KNOWN, MODEL, serve_known, switched
from tests.tiny_decoders import load_engine, settings

ONE_BY_ONE = "one by one"
EXECUTIONS = (ExecutionMode.EAGER, ExecutionMode.COMPILED)


def main() -> int:
    num_tokens = _arguments().tokens
    loaded = load_engine(settings(MODEL, weights={"dtype": "fp32"}))
    wrong = 0
    for kind, layout, mode, batching in _combinations():
        engine = switched(loaded, kind, layout, mode)
        outputs, preemptions = _continued(engine, batching, num_tokens)
        same = [
            _same(output, known.greedy_ids) for output, known in zip(outputs, KNOWN, strict=True)
        ]
        wrong += min(same) < num_tokens
        words = f"{kind.value:9} {layout.value:11} {mode.value:9} {batching:11}"
        note = f", {preemptions} preempted" if preemptions else ""
        print(f"{words} same tokens {same} of {num_tokens}{note}", flush=True)
    print(f"{wrong} combinations differ")
    return min(wrong, 1)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--tokens", type=int, default=48, choices=range(1, 49), metavar="1..48")
    return parser.parse_args()


def _combinations() -> Iterator[tuple[AttentionKind, KvLayout, ExecutionMode, str]]:
    batchings = (ONE_BY_ONE, *(policy.value for policy in BatchingPolicy))
    for one in itertools.product(AttentionKind, KvLayout, EXECUTIONS, batchings):
        if one[1] is not KvLayout.NONE or one[2] is ExecutionMode.EAGER:
            yield one


def _continued(
    engine: Engine, batching: str, num_tokens: int
) -> tuple[Sequence[Sequence[int]], int]:
    if batching == ONE_BY_ONE:
        sampler = GreedySampler()
        runs = [engine.generate(one.prompt_ids, sampler, max_tokens=num_tokens) for one in KNOWN]
        return [run.ids for run in runs], 0
    with tempfile.TemporaryDirectory() as folder:
        served = serve_known(engine, BatchingPolicy(batching), Path(folder), num_tokens=num_tokens)
    return served.outputs, served.preemptions


def _same(output: Sequence[int], expected: Sequence[int]) -> int:
    """Tokens before the first difference."""
    pairs = zip(output, expected, strict=False)
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))


if __name__ == "__main__":
    sys.exit(main())
