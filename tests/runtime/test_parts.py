"""Values in parts: small ones in one, large arrays apart and not copied; and what lies in memory comes out of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from piper_dsl.runtime.spec import Batch
from piper_dsl.targets.parts import LARGE, from_parts, nbytes_of, read_parts, to_parts, write_parts

SMALL, BIG = np.arange(10), np.arange(LARGE)


@pytest.mark.parametrize(("value", "count"), [(None, 1), ([SMALL, "x"], 1), ((SMALL, BIG, BIG + 1), 3)])
def test_what_is_large_is_a_part_of_its_own(value: Any, count: int) -> None:
    parts = to_parts(value)
    assert len(parts) == count
    found = from_parts(parts)
    assert repr(found) == repr(value)


def test_a_large_array_is_not_copied() -> None:
    _, part = to_parts(BIG)
    assert np.shares_memory(part, BIG)
    found = from_parts([to_parts(BIG)[0], bytearray(part)])
    found += 1
    assert np.array_equal(found, BIG + 1)


def test_a_class_that_nobody_can_import_comes_along() -> None:
    class Mine:
        def __init__(self, value: int) -> None:
            self.value = value

    found = from_parts(to_parts(Mine(3)))
    assert found.value == 3


def test_a_batch_of_any_size_can_be_written_to() -> None:
    for size in (1, LARGE):
        data = {(0, i): (torch.full((size,), float(i)),) for i in range(3)}
        head, *large = to_parts(Batch(4, data))
        assert len(large) == (size == LARGE)
        found = from_parts([head, *map(bytearray, large)])
        for (_, i), (tensor,) in found.inputs.items():
            assert torch.equal(tensor.add_(1), torch.full((size,), i + 1.0))


@given(st.lists(st.binary(max_size=300), max_size=5))
def test_what_is_written_is_read(texts: list[bytes]) -> None:
    memory = memoryview(bytearray(nbytes_of(texts)))
    write_parts(memory, texts)
    assert read_parts(memory) == texts
