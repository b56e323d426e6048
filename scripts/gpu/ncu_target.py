"""What runs under ncu: a model of two layers, and a few decode steps between its start and its stop.

python -m scripts.gpu.ncu_target CASE DEVICE MODEL FOLDER
"""

import sys
from pathlib import Path

from scripts.gpu.ncu_check import STEPS, settings_of, shallow_model


def main(case: str, device: str, model: str, folder: Path) -> None:
    import torch

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
    on_gpu = device != "cpu"
    if on_gpu:
        torch.cuda.synchronize()
        torch.cuda.profiler.start()  # type: ignore[no-untyped-call]
    for _ in range(STEPS):
        engine.step(batch, sampler, probe)
    if on_gpu:
        torch.cuda.synchronize()
        torch.cuda.profiler.stop()  # type: ignore[no-untyped-call]
    sequence = SequenceShape(count=work.batch, new_tokens=1, cached_tokens=first)
    shape = StepShape(phase=Phase.DECODE, sequences=(sequence,), logit_rows=work.batch)
    cost = step_cost(engine.model, engine.manifest, shape, cost_options(engine, config))
    (folder / f"ncu-{case}.cost.json").write_text(cost.model_dump_json())


if __name__ == "__main__":
    case, device, model, folder = sys.argv[1:]
    main(case, device, model, Path(folder))
