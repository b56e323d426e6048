"""Which workload the settings ask for."""

from llmprof.engine.capabilities import serves_requests
from llmprof.engine.engine import Engine
from llmprof.engine.engine_workload import EngineWorkload
from llmprof.engine.serving_workload import ServingWorkload
from llmprof.engine.workload import Workload
from llmprof.schema.settings import RunConfig


def open_workload(engine: Engine, config: RunConfig) -> Workload:
    """Fixed work in one static batch, or requests that a scheduler serves.

    Raises:
        InputError: too many tokens for the model, or a trace that cannot be read.
        CapabilityError: `kv_cache.memory_bytes` is too little.
        MeasurementFailedError: memory ran out.
    """
    if serves_requests(config):
        return ServingWorkload(engine, config)
    return EngineWorkload(engine, config)
