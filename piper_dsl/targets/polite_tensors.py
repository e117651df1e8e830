"""The type of edges on accelerators whose readers sleep: Ray's own spin on what goes before and beside the tensors."""

from __future__ import annotations

from typing import Any

from ray.experimental.channel import CompositeChannel
from ray.experimental.channel.torch_tensor_type import TorchTensorType

from .graph_channels import GraphChannels, PoliteChannel

__all__ = ["PoliteTensors"]


class PoliteTensors(TorchTensorType):
    """Tensors through a communicator, as ``transport`` says; their shapes go ahead of them through ``channels``."""

    def __init__(self, transport: Any, channels: GraphChannels) -> None:
        super().__init__(transport=transport)
        self._channels = channels

    def create_channel(
        self,
        writer: Any,
        reader_and_node_list: list[tuple[Any, str]],
        driver_actor_id: str | None = None,
        _cpu_data_channel: Any = None,
        _tensor_metadata_channel: Any = None,
    ) -> Any:
        """The channel from ``writer`` to its readers. Ray asks for it in the writer's process."""
        shapes: Any = self._channels.create_channel(writer, reader_and_node_list, driver_actor_id)
        # What is not tensors is written as Ray's serializer has it, which only its own channels take.
        rest: Any = PoliteChannel(CompositeChannel(writer, reader_and_node_list, 1, driver_actor_id), self._channels)
        return super().create_channel(writer, reader_and_node_list, driver_actor_id, rest, shapes)

    def __deepcopy__(self, memo: dict[int, Any]) -> PoliteTensors:
        """As in the base class, with the same communicator."""
        copied = PoliteTensors(self._communicator or self.transport, self._channels)
        copied._communicator_id = self._communicator_id
        return copied
