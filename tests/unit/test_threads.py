"""Number of PyTorch's threads: inside a block, and in one thread of the program."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from glassformer.base.config import ModelConfig, SampleConfig
from glassformer.generation.decoding import TokenLoop
from glassformer.generation.logit_readers import PlainReader
from glassformer.generation.slot_reader import NextLogits
from glassformer.model.build import build_model
from glassformer.model.threads import set_threads_here, threads
from glassformer.model.transformer import Decoder


@pytest.fixture(autouse=True)
def two_threads() -> Iterator[None]:
    """Let PyTorch use two threads, whatever the machine has."""
    with threads(2):
        yield


def in_new_thread(work: Callable[[], int]) -> int:
    """Return the result of `work` in a thread that starts now."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(work).result()


def test_the_number_is_restored_after_an_error() -> None:
    def fails() -> None:
        with threads(1):
            raise ValueError(str(torch.get_num_threads()))

    with pytest.raises(ValueError, match="1"):
        fails()
    assert torch.get_num_threads() == 2


def test_none_does_not_change_the_number() -> None:
    with threads(None):
        assert torch.get_num_threads() == 2


def test_the_number_of_one_thread_does_not_affect_others() -> None:
    def here() -> int:
        set_threads_here(1)
        set_threads_here(1)  # as for each new checkpoint that a server's thread loads
        return torch.get_num_threads()

    assert in_new_thread(here) == 1
    assert torch.get_num_threads() == 2
    assert in_new_thread(torch.get_num_threads) == 2


def test_a_step_samples_with_the_threads_of_its_engine() -> None:
    seen = []

    class OneThreadReader(PlainReader):
        def __init__(self, model: Decoder) -> None:
            super().__init__(model)
            self.torch_threads = 1

        def read(self, rows: Sequence[Sequence[int]]) -> NextLogits:
            seen.append(torch.get_num_threads())
            return super().read(rows)

    model = build_model(ModelConfig(vocab_size=5, layers=1, width=8, heads=1, context=8))
    assert isinstance(model, Decoder)
    loop = TokenLoop(OneThreadReader(model.eval()), end_id=None)
    loop.join([1], SampleConfig(tokens=2))
    list(loop.steps())
    assert seen == [1, 1]
    assert torch.get_num_threads() == 2
