"""What crosses process borders as bytes comes out as it went in."""

from __future__ import annotations

import pickle

import pytest
import torch

from piper_dsl.runtime.message import Message
from piper_dsl.runtime.packed import Packed
from piper_dsl.runtime.spec import Batch

TENSORS = (
    torch.randn(3, 2),
    torch.randn(4, 6, dtype=torch.float64)[::2, 1:4],
    torch.arange(5),
    torch.tensor([True, False]),
    torch.tensor(2.5, dtype=torch.bfloat16),
    torch.zeros(0, 3),
    torch.randn(2, 2, requires_grad=True),
    torch.randn(2, 3, dtype=torch.complex64).conj(),
    torch.randn(2, dtype=torch.complex64).conj().imag,
)


def _same(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.dtype == other.dtype and one.shape == other.shape and torch.equal(one, other)


def test_a_message_comes_out_as_it_went_in() -> None:
    flags = tuple(x.requires_grad for x in TENSORS)
    found = pickle.loads(pickle.dumps(Packed.of(Message(3, 0, 1, 2, TENSORS, flags)))).message()
    assert (found.step, found.source, found.target, found.microbatch, found.needs_grad) == (3, 0, 1, 2, flags)
    assert all(map(_same, found.tensors, TENSORS))
    found.tensors[0].add_(1)


def test_a_microbatch_does_not_bring_its_batch_along() -> None:
    whole = torch.randn(64, 1000)
    batch = Batch(7, {(0, i): (part,) for i, part in enumerate(whole.split(8))}, {(1, 0): TENSORS[:1]}, False, False)
    text = pickle.dumps(batch)
    assert len(text) < 1.1 * whole.nbytes
    found = pickle.loads(text)
    assert (found.step, found.training, found.updates) == (7, False, False)
    assert torch.equal(torch.cat([found.inputs[0, i][0] for i in range(8)]), whole)
    assert _same(found.targets[1, 0][0], TENSORS[0])


def test_data_of_any_kind_comes_out_as_it_went_in() -> None:
    batch = Batch(0, {(stage, i): TENSORS for stage in (0, 3) for i in (4, 1, 2)}, {(3, 1): (torch.zeros(2, 0),)})
    found = pickle.loads(pickle.dumps(batch))
    assert list(found.inputs) == list(batch.inputs)
    assert all(all(map(_same, tensors, TENSORS)) for tensors in found.inputs.values())
    assert found.targets[3, 1][0].shape == (2, 0)


def test_microbatches_share_nothing_once_they_have_arrived() -> None:
    found = pickle.loads(pickle.dumps(Batch(0, {(0, i): (torch.zeros(2),) for i in range(3)}))).inputs
    version = found[0, 1][0]._version
    found[0, 0][0].add_(1)
    assert [found[0, i][0].tolist() for i in range(3)] == [[1, 1], [0, 0], [0, 0]]
    assert found[0, 1][0]._version == version


def test_microbatches_of_different_shapes_are_not_stacked() -> None:
    sent = {(0, 0): (torch.ones(2),), (0, 1): (torch.ones(3), torch.ones(1))}
    found = pickle.loads(pickle.dumps(Batch(0, sent))).inputs
    assert {key: [x.shape for x in xs] for key, xs in found.items()} == {
        k: [x.shape for x in v] for k, v in sent.items()
    }


@pytest.mark.parametrize("tensor", [torch.eye(3).to_sparse(), torch.nn.Parameter(torch.ones(2))])
def test_what_is_more_than_its_values_is_left_as_it_is(tensor: torch.Tensor) -> None:
    found = pickle.loads(pickle.dumps(Batch(0, {(0, 0): (tensor,)}))).inputs[0, 0][0]
    assert (type(found), found.layout) == (type(tensor), tensor.layout)
    assert torch.equal(found.to_dense(), tensor.to_dense())
