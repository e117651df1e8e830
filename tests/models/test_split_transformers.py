"""Causal language models of Hugging Face, from configs: cut and trained as one process trains them."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from model_zoo import sgd
from torch import nn

import piper_dsl as piper

transformers = pytest.importorskip("transformers", reason="transformers is not installed: pip install '.[test]'")

VOCABULARY, WIDTH = 50, 16


def llama() -> nn.Module:
    """Four layers with grouped-query attention and rotary positions."""
    return transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            vocab_size=VOCABULARY,
            hidden_size=WIDTH,
            intermediate_size=32,
            num_hidden_layers=4,
            num_attention_heads=2,
            num_key_value_heads=1,
            use_cache=False,
        )
    )


def gpt2() -> nn.Module:
    """Four layers with learned positions, head and embedding untied, without dropout."""
    return transformers.GPT2LMHeadModel(
        transformers.GPT2Config(
            vocab_size=VOCABULARY,
            n_positions=32,
            n_embd=WIDTH,
            n_layer=4,
            n_head=2,
            use_cache=False,
            tie_word_embeddings=False,
            bos_token_id=0,
            eos_token_id=0,
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
        )
    )


MODELS = {"llama": (llama, "model.layers"), "gpt2": (gpt2, "transformer.h")}


def next_token_loss(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Mean cross entropy."""
    return nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def trained_alone(model: nn.Module, batches: list[Any]) -> tuple[list[float], dict[str, torch.Tensor]]:
    model = copy.deepcopy(model)
    optimizer, losses = sgd(list(model.parameters())), []
    for tokens, targets in batches:
        loss = next_token_loss(model(tokens).logits, targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses, model.state_dict()


@pytest.mark.parametrize(("make", "layers"), MODELS.values(), ids=MODELS)
def test_it_trains_as_in_one_process(make: Any, layers: str) -> None:
    torch.manual_seed(0)
    model = make().double()
    tokens = torch.randint(VOCABULARY, (2, 8, 9))
    batches = [(one[:, :-1], one[:, 1:]) for one in tokens]
    losses, state = trained_alone(model, batches)
    stages = piper.split_model(model, batches[0][0][:2], [f"{layers}.{n}" for n in (1, 2, 3)])
    for name, p in (("1f1b", 4), ("interleaved_1f1b", 2)):
        schedule = piper.load(name, p=p, m=4)
        with piper.Pipeline(stages, schedule, loss_fn=next_token_loss, optimizer=sgd) as pipeline:
            assert [pipeline.step(*batch) for batch in batches] == pytest.approx(losses, rel=1e-11)
            found = {key: value for stage in pipeline.state_dict().values() for key, value in stage.items()}
        assert found.keys() == state.keys()
        for key, value in state.items():
            torch.testing.assert_close(found[key], value, rtol=1e-11, atol=1e-11, msg=lambda m, key=key: f"{key}: {m}")


def test_only_hidden_states_cross() -> None:
    # The causal mask and the rotary angles are made again where they are needed.
    stages = piper.split_model(llama(), torch.randint(VOCABULARY, (2, 8)), ["model.layers.1", "model.layers.3"])
    hidden = stages[0](torch.randint(VOCABULARY, (3, 8)))
    assert hidden.shape == (3, 8, WIDTH)
    assert stages[1](hidden).shape == (3, 8, WIDTH)


def test_tied_embeddings_are_one_parameter_under_two_names() -> None:
    config = transformers.LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=WIDTH,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        use_cache=False,
        tie_word_embeddings=True,
    )
    model = transformers.LlamaForCausalLM(config)
    first, second = piper.split_model(model, torch.randint(VOCABULARY, (2, 8)), ["model.layers.1"])
    tied = dict(first.named_parameters())["model.embed_tokens.weight"]
    assert dict(second.named_parameters())["lm_head.weight"] is tied
