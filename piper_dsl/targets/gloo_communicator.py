"""Ray Compiled Graph's accelerator path on CPU actors, carried by gloo.

Ray moves a hinted tensor with the communicator's ``send`` and ``recv``, placed in each actor's
schedule. Here both block until the other side arrives, as a receive on a GPU's only stream does,
so a CPU test runs the same hints, the same order and the same deadlocks as an accelerator.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from datetime import timedelta
from typing import Any, cast

import torch
from ray.exceptions import RayChannelError
from ray.experimental.channel import ChannelContext
from ray.experimental.channel.accelerator_context import AcceleratorContext
from ray.experimental.channel.cpu_communicator import CPUCommunicator
from ray.experimental.util.types import ReduceOp
from torch.distributed import ProcessGroupGloo, TCPStore  # type: ignore[attr-defined]
from torch.distributed import ReduceOp as TorchReduceOp
from torch.distributed.distributed_c10d import PrefixStore

CONNECT_TIMEOUT = timedelta(seconds=60)
NO_TIMEOUT = timedelta(days=365)
DATA_TAG, RELEASE_TAG = 0, 1


class _HostAccelerator:
    """The actor's device to Ray, which asks for another type than cpu and for tensors on it."""

    type = "host"

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 0


class _HostContext(AcceleratorContext):
    """Tells Ray that the actor's device is the stand-in, which needs no streams."""

    def __init__(self) -> None:
        super().__init__("cpu", CPUCommunicator)

    def get_accelerator_devices(self) -> list[Any]:
        return [_HostAccelerator()]

    def get_device_context(self, device: object) -> AbstractContextManager[None]:
        return nullcontext()


class GlooCommunicator(CPUCommunicator):
    """One gloo group over ``actors``; rank i is ``actors[i]``.

    Made in the driver, which hosts the rendezvous until the object is gone; copies in the actors
    only connect. May serve several graphs, one after another: each compilation makes a new group.
    A subclass of CPUCommunicator because Ray asks every other kind for actors with accelerators.
    """

    def __init__(self, actors: list[Any], host: str = "127.0.0.1", port: int | None = None) -> None:
        super().__init__(len(actors), list(actors))
        self._server: TCPStore | None = None
        self._group: Any = None
        if port is None:
            self._server = TCPStore(host, 0, is_master=True, wait_for_workers=False)
            port = self._server.port
        self._address = (host, port)

    def __reduce__(self) -> tuple[type[GlooCommunicator], tuple[object, ...]]:
        return type(self), (self._actor_handles, *self._address)

    def initialize(self, rank: int) -> None:
        """Joins the group. Runs once in every actor for each compilation, on all at once."""
        super().initialize(rank)
        host, port = self._address
        store = TCPStore(host, port, is_master=False, timeout=CONNECT_TIMEOUT)
        # Every rank counts its own compilations, so all agree on a fresh name for this one.
        generation = store.add(f"generation/{rank}", 1)
        group_type: Any = ProcessGroupGloo
        options = group_type._Options()
        options._devices = [group_type.create_device(hostname=host)]
        options._timeout = CONNECT_TIMEOUT
        self._group = group_type(PrefixStore(f"group/{generation}", store), rank, self._world_size, options)
        AcceleratorContext.set(_HostContext())
        ChannelContext.get_current().set_torch_device(cast(torch.device, _HostAccelerator()))

    def _wait(self, start: Callable[[Any], torch.distributed.Work]) -> None:
        """Starts an operation and blocks; a lost peer closes the graph's loop in this actor."""
        group = self._group
        if group is None:
            raise RayChannelError("the gloo group is closed")
        try:
            start(group).wait(NO_TIMEOUT)
        except RuntimeError as error:
            raise RayChannelError(f"gloo, rank {self._rank}: {error}") from error

    def send(self, tensor: torch.Tensor, peer_rank: int) -> None:
        """Blocks until ``peer_rank`` has received ``tensor``."""
        data = tensor.detach().contiguous()
        self._wait(lambda group: group.send([data], peer_rank, DATA_TAG))

    def recv(
        self,
        shape: tuple[int, ...],
        dtype: torch.dtype,
        peer_rank: int,
        allocator: object = None,
    ) -> torch.Tensor:
        """Blocks for a tensor from ``peer_rank``. Ray's allocator would ask for a real device."""
        data = torch.empty(shape, dtype=dtype)
        self._wait(lambda group: group.recv([data], peer_rank, DATA_TAG))
        return data

    def allreduce(self, send_buf: torch.Tensor, recv_buf: torch.Tensor, op: ReduceOp = ReduceOp.SUM) -> None:
        """Reduces over all ranks into ``recv_buf``."""
        recv_buf.copy_(send_buf)
        average = op is ReduceOp.AVG  # gloo has no average
        kind = TorchReduceOp.SUM if average else getattr(TorchReduceOp, op.name)
        self._wait(lambda group: group.allreduce([recv_buf], kind))
        if average:
            recv_buf.div_(self._world_size)

    def destroy(self) -> None:
        """Closes the group, idempotent; a send or receive blocked in another thread fails.

        Gloo has no cancel, but a wait that times out closes every connection of its group, and
        with them all waits, here and at the peers.
        """
        group, self._group = self._group, None
        if group is None or self._rank is None or self._world_size < 2:
            return
        peer = (self._rank + 1) % self._world_size
        with suppress(RuntimeError):
            group.recv([torch.empty(1)], peer, RELEASE_TAG).wait(timedelta(milliseconds=1))

    def get_transport_name(self) -> str:
        return "accelerator"
