"""The processes that share out a model, and how they speak: torch.distributed, gloo or NCCL.

Work goes through the default group. Word that a round starts goes through a group of its own on the
host, so that a rank that waits for it never stands in the way of the work.
"""

import signal
import threading
import time
from dataclasses import dataclass, field
from datetime import timedelta
from enum import IntEnum
from typing import Any, Final

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous

from llmprof.engine.kernels.launch import observable
from llmprof.engine.launch_environment import Launch
from llmprof.engine.probe import Probe
from llmprof.errors import CapabilityError, MeasurementFailedError
from llmprof.schema.cost import OpGroup

_FAILURE: Final = "llmprof/failure"
_BACKENDS: Final = ("gloo", "NCCL")
"""Named in the RuntimeErrors of a broken connection that are of no class of their own."""
_LAST_WORDS_S: Final = 1.0
"""That a rank which failed may take to say why."""


# all_gather_into_tensor until torch 2.12, which warns of it from 2.13 on
_all_gather: Final = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor


class Word(IntEnum):
    """What the first rank tells the others to do next."""

    END = 0
    ROUND = 1
    LEAD_IN = 2


class LostRankError(MeasurementFailedError):
    """Another process of the group has gone."""


@observable("all_reduce_", mutates=("x",))
def all_reduce_(x: torch.Tensor) -> None:
    """Sum x over all ranks, in place and in the dtype of x; contiguous, any shape."""
    dist.all_reduce(x)


def _gathered_shape(x: torch.Tensor, ranks: int) -> torch.Tensor:
    return x.new_empty((ranks, *x.shape))


@observable("all_gather", fake=_gathered_shape)
def all_gather(x: torch.Tensor, ranks: int) -> torch.Tensor:
    """The x of every rank, [ranks, *x.shape]; contiguous, of the same shape everywhere."""
    out = _gathered_shape(x, ranks)
    _all_gather(out.flatten(0, 1), x)
    return out


@dataclass(frozen=True, slots=True)
class RankGroup:
    """This process among those that share out a model."""

    rank: int
    size: int
    backend: str
    store: Any
    """Of key and value, held by whoever started the group."""
    host: Any = field(repr=False)
    """Process group on the host."""

    @property
    def leads(self) -> bool:
        return self.rank == 0

    def sum_(self, x: torch.Tensor, probe: Probe) -> None:
        """Add up the x of all ranks in place: an op of the group `communication`."""
        probe.group_begin(OpGroup.COMMUNICATION)
        try:
            all_reduce_(x)
        except RuntimeError as error:
            raise self._lost(error) from error
        probe.group_end()

    def sum_inside(self, x: torch.Tensor, group: OpGroup, probe: Probe) -> None:
        """As `sum_` in the middle of a group, which is left for it: groups never nest."""
        probe.group_end()
        self.sum_(x, probe)
        probe.group_begin(group)

    def joined_columns(self, x: torch.Tensor, probe: Probe) -> torch.Tensor:
        """Columns x [rows, columns] of every rank side by side, [rows, ranks * columns]."""
        probe.group_begin(OpGroup.COMMUNICATION)
        try:
            parts = all_gather(x, self.size)
        except RuntimeError as error:
            raise self._lost(error) from error
        whole = parts.transpose(0, 1).reshape(x.shape[0], -1)
        probe.group_end()
        return whole

    def announce(self, word: Word) -> None:
        """From the leader: the others are to do the same."""
        try:
            dist.broadcast(torch.tensor([word.value]), 0, group=self.host)
        except RuntimeError as error:
            raise self._lost(error) from error

    def next_word(self) -> Word:
        """Of the others: wait for the first one's word.

        Raises:
            LostRankError: it has gone.
        """
        word = torch.zeros(1, dtype=torch.int64)
        try:
            dist.broadcast(word, 0, group=self.host)
        except RuntimeError as error:
            raise LostRankError("the first rank has gone") from error
        return Word(int(word))

    def report_failure(self, why: str) -> None:
        """For the leader, which speaks for all; the first reason counts."""
        if not self.store.check([_FAILURE]):
            self.store.set(_FAILURE, f"rank {self.rank} of {self.size}: {why}")

    def _lost(self, error: RuntimeError) -> Exception:
        """What torch raises where a peer has gone, as one line."""
        if not (isinstance(error, dist.DistError) or any(name in str(error) for name in _BACKENDS)):
            return error
        # torchrun ends the others as soon as one has gone: first this one says why
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        return LostRankError(
            self._last_words() or f"one of the {self.size} processes ended without a word",
            remedy="Run it again; if it was killed, look for the cause in the system's log",
        )

    def failure(self) -> str | None:
        """What a rank that failed has reported."""
        try:
            said: bytes = self.store.get(_FAILURE) if self.store.check([_FAILURE]) else b""
        except RuntimeError:  # whoever held the store has gone as well
            return None
        return said.decode() or None

    def _last_words(self) -> str | None:
        deadline = time.monotonic() + _LAST_WORDS_S
        while time.monotonic() < deadline:
            if said := self.failure():
                return said
            time.sleep(0.05)
        return None


def join_ranks(launch: Launch, device: str) -> RankGroup:
    """Meet the other processes; on a GPU also take the device, which NCCL needs.

    Raises:
        CapabilityError: torch has no backend for the device.
        MeasurementFailedError: the others did not come.
    """
    backend = "gloo" if device == "cpu" else "nccl"
    if not dist.is_available() or not dist.is_backend_available(backend):
        raise CapabilityError(
            f"this torch has no {backend}, by which processes on {device} exchange their sums",
            remedy="Install a build of torch with torch.distributed, or set parallel.tensor=1",
        )
    if device != "cpu":
        torch.cuda.set_device(device)
    try:
        meeting = rendezvous("env://", timeout=timedelta(minutes=5))
        store, rank, size = next(iter(meeting))
        dist.init_process_group(
            backend, store=PrefixStore("llmprof", store), rank=rank, world_size=size
        )
        host = dist.group.WORLD if backend == "gloo" else dist.new_group(backend="gloo")
    except RuntimeError as error:
        raise MeasurementFailedError(
            f"the {launch.world_size} processes did not meet: {error}",
            remedy="Check that they may open sockets to each other",
        ) from error
    return RankGroup(rank=rank, size=size, backend=backend, store=store, host=host)


def leave_ranks() -> None:
    """Close the group in good order: every rank comes here."""
    dist.destroy_process_group()
