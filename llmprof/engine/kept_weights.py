"""Weights that stay in memory from one run to the next: a sweep need not load them for each cell."""

from collections.abc import Callable
from dataclasses import dataclass

from llmprof.architectures.source import ModelSource
from llmprof.engine.admission import admit
from llmprof.engine.engine import Engine
from llmprof.schema.settings import RoutingSettings, RunConfig, WeightsSettings
from llmprof.store.progress import Progress


@dataclass(frozen=True, slots=True)
class _Loaded:
    """All that decides what is in memory after loading, and where its pages lie."""

    source: ModelSource
    weights: WeightsSettings
    routing: RoutingSettings
    device: str
    threads: int


class KeptWeights:
    """At most one model: the one before is gone before another is loaded, or asked whether it fits."""

    def __init__(self) -> None:
        self._loaded: _Loaded | None = None
        self._engine: Engine | None = None
        """Never runs a step itself, so it holds nothing but weights."""

    def engine(
        self,
        source: ModelSource,
        config: RunConfig,
        *,
        device: str,
        threads: int,
        host_available_bytes: Callable[[], int],
        progress: Progress,
    ) -> Engine:
        """An engine as `Engine.load` makes it, from the weights that are here where they are its own.

        `host_available_bytes` is asked after what is not needed has gone. Raises what `Engine.load`
        raises.
        """
        wanted = _Loaded(source, config.weights, config.routing, device, threads)
        if self._engine is not None and wanted == self._loaded:
            admit(
                source,
                config,
                device=device,
                host_available_bytes=host_available_bytes(),
                weights_in_memory=True,
            )
        else:
            self.drop()
            progress.note(f"loading {config.model} on {device}")
            self._engine = Engine.load(
                source,
                config,
                device=device,
                threads=threads,
                host_available_bytes=host_available_bytes(),
            )
            self._loaded = wanted
        return self._engine.arranged(config, progress)

    def drop(self) -> None:
        """Give the memory back."""
        self._loaded = self._engine = None
