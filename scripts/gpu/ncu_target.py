"""What runs under ncu: a model of two layers, and a few decode steps of each case.

python -m scripts.gpu.ncu_target DEVICE MODEL FOLDER SECONDS

All cases in one process: to begin one under ncu takes longer than to count its kernels. A kernel that does
nothing stands before those of each case.
"""

import gc
import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Final

from scripts.gpu.job import in_one_line, write_whole
from scripts.gpu.ncu_check import BEGUN, CASES, STEPS, cost_of, error_of, settings_of, shallow_model

_LEAST_S: Final = 3.0
"""With less than this left no other case is begun."""


def main(device: str, model: str, folder: Path, seconds: float) -> None:
    """What a case fails with is left for whoever reads the figures; the next one has its turn."""
    deadline_s = time.perf_counter() + seconds
    begun: list[str] = []
    for case in CASES:
        if deadline_s - time.perf_counter() < _LEAST_S:
            return
        try:
            _count(case, device, model, folder, begun)
        except Exception as error:  # noqa: BLE001
            write_whole(error_of(folder, case), in_one_line(error))
        gc.collect()
        if device != "cpu":
            import torch

            torch.cuda.empty_cache()


def _count(case: str, device: str, model: str, folder: Path, begun: list[str]) -> None:
    from llmprof.architectures.source import resolve_model
    from llmprof.costs.step import step_cost
    from llmprof.engine.description import cost_options
    from llmprof.engine.engine import Engine
    from llmprof.engine.engine_workload import random_prompts
    from llmprof.engine.kv_cache import KvPool
    from llmprof.engine.probe import NullProbe
    from llmprof.engine.sampling import GreedySampler
    from llmprof.instruments.host_memory import host_memory
    from llmprof.schema.cost import Phase, SequenceShape, StepShape
    from llmprof.store.settings_file import load_settings

    config = load_settings(shallow_model(model, folder), settings_of(case, device), [])
    engine = Engine.load(
        resolve_model(config.model, weights=config.weights.source),
        config,
        device=device,
        threads=1,
        host_available_bytes=host_memory().available_bytes,
    )
    work = config.workload
    prompts = random_prompts(engine.model.vocab_size, work.batch, work.prompt_tokens, work.seed)
    batch = engine.open_batch(prompts, output_tokens=work.output_tokens)
    if isinstance(batch.cache, KvPool):
        batch.cache.fill_random(work.seed)
    batch.restart(num_cached=work.prompt_tokens)
    sampler, probe = GreedySampler(), NullProbe()
    engine.step(batch, sampler, probe)
    first = batch.num_cached
    begun.append(case)
    write_whole(folder / BEGUN, json.dumps(begun))
    with _counted() if device != "cpu" else nullcontext():
        for _ in range(STEPS):
            engine.step(batch, sampler, probe)
    sequence = SequenceShape(count=work.batch, new_tokens=1, cached_tokens=first)
    shape = StepShape(phase=Phase.DECODE, sequences=(sequence,), logit_rows=work.batch)
    cost = step_cost(engine.model, engine.manifest, shape, cost_options(engine, config))
    write_whole(cost_of(folder, case), cost.model_dump_json())


@contextmanager
def _counted() -> Iterator[None]:
    """By ncu, after the mark of a case."""
    import torch

    torch.cuda.synchronize()
    torch.cuda.profiler.start()  # type: ignore[no-untyped-call]
    try:
        torch.cuda._sleep(1)  # type: ignore[no-untyped-call]
        yield
        torch.cuda.synchronize()
    finally:
        torch.cuda.profiler.stop()  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    device, model, folder, seconds = sys.argv[1:]
    main(device, model, Path(folder), float(seconds))
