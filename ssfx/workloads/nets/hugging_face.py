"""Transformers from their public definitions in the transformers library, with random weights and without downloads."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ssfx.workloads.nets.torchvision_import import import_torchvision


def gpt2(*, width: int, layers: int, heads: int, vocabulary: int, positions: int, dropout: float) -> nn.Module:
    """Return a GPT-2 language model whose head shares the token embedding."""
    transformers = _transformers()
    config = transformers.GPT2Config(
        vocab_size=vocabulary, n_positions=positions, n_embd=width, n_layer=layers, n_head=heads, use_cache=False,
        resid_pdrop=dropout, embd_pdrop=dropout, attn_pdrop=dropout, bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    model: nn.Module = transformers.GPT2LMHeadModel(config)
    return model


def bert_qa(*, width: int, layers: int, heads: int, vocabulary: int) -> nn.Module:
    """Return BERT with a question-answering head; it has no pooler, which would never receive a gradient."""
    transformers = _transformers()
    config = transformers.BertConfig(
        vocab_size=vocabulary, hidden_size=width, num_hidden_layers=layers, num_attention_heads=heads,
        intermediate_size=4 * width,
    )  # fmt: skip
    model: nn.Module = transformers.BertForQuestionAnswering(config)
    return model


def bert_pretraining(*, width: int, layers: int, heads: int, vocabulary: int) -> nn.Module:
    """Return BERT with the heads for masked words, tied to the embedding, and for the next sentence."""
    transformers = _transformers()
    config = transformers.BertConfig(
        vocab_size=vocabulary, hidden_size=width, num_hidden_layers=layers, num_attention_heads=heads,
        intermediate_size=4 * width,
    )  # fmt: skip
    model: nn.Module = transformers.BertForPreTraining(config)
    return model


def bloom(*, width: int, layers: int, heads: int, vocabulary: int) -> nn.Module:
    """Return a BLOOM language model whose head shares the token embedding."""
    transformers = _transformers()
    config = transformers.BloomConfig(
        vocab_size=vocabulary, hidden_size=width, n_layer=layers, n_head=heads, use_cache=False
    )
    model: nn.Module = transformers.BloomForCausalLM(config)
    return model


class SpanReader(nn.Module):
    """A question-answering network of transformers whose logits [N, 2, T] say where the answer starts and ends."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the logits of tokens [N, T]: of the first token of the answer, then of the last."""
        out = self.network(tokens)
        return torch.stack((out.start_logits, out.end_logits), dim=1)


def vit(*, width: int, layers: int, heads: int) -> nn.Module:
    """Return a vision transformer for 224x224 images in 16x16 patches and 1000 classes."""
    transformers = _transformers()
    config = transformers.ViTConfig(
        hidden_size=width, num_hidden_layers=layers, num_attention_heads=heads, intermediate_size=4 * width,
        num_labels=1000,
    )  # fmt: skip
    model: nn.Module = transformers.ViTForImageClassification(config)
    return model


def _transformers() -> Any:
    # transformers imports torchvision on its own, and would fail on a build that our import can repair.
    import_torchvision()
    import transformers

    return transformers
