"""Transformers from their public definitions in the transformers library, with random weights and without downloads."""

import functools
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from ssfx.core.errors import ConfigError
from ssfx.lab.workloads.nets.torchvision_import import import_torchvision


def gpt2(*, width: int, layers: int, heads: int, vocabulary: int, positions: int, dropout: float) -> nn.Module:
    """Return a GPT-2 language model whose head shares the token embedding."""
    transformers = _transformers()
    config = transformers.GPT2Config(
        vocab_size=vocabulary,
        n_positions=positions,
        n_embd=width,
        n_layer=layers,
        n_head=heads,
        use_cache=False,
        resid_pdrop=dropout,
        embd_pdrop=dropout,
        attn_pdrop=dropout,
        bos_token_id=0,
        eos_token_id=0,
    )
    model: nn.Module = transformers.GPT2LMHeadModel(config)
    return model


def bert_qa(*, width: int, layers: int, heads: int, vocabulary: int, **config: Any) -> nn.Module:
    """Return BERT with a question-answering head; it has no pooler, which would never receive a gradient."""
    return reader_class()(_bert_config(width, layers, heads, vocabulary, **config))


def _bert_config(width: int, layers: int, heads: int, vocabulary: int, **config: Any) -> Any:
    sizes = {
        "vocab_size": vocabulary,
        "hidden_size": width,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "intermediate_size": 4 * width,
    }
    return _transformers().BertConfig(**sizes | config)


@functools.cache
def reader_class() -> type[nn.Module]:
    """Return BertForQuestionAnswering of one tensor: tokens [N, T], or tokens, mask and segments [N, 3, T]."""

    class BertReader(_transformers().BertForQuestionAnswering):  # type: ignore[misc]
        def forward(self, inputs: Tensor) -> Any:
            return super().forward(**_bert_inputs(inputs))

    return BertReader


def _bert_inputs(inputs: Tensor) -> dict[str, Tensor]:
    if inputs.ndim == 2:
        return {"input_ids": inputs}
    tokens, mask, segments = inputs.unbind(1)
    return {"input_ids": tokens, "attention_mask": mask, "token_type_ids": segments}


def bert_pretraining(*, width: int, layers: int, heads: int, vocabulary: int) -> nn.Module:
    """Return BERT with the heads for masked words, tied to the embedding, and for the next sentence."""
    return pretraining_class()(_bert_config(width, layers, heads, vocabulary))


@functools.cache
def pretraining_class() -> type[nn.Module]:
    """Return BertForPreTraining with the sum of both losses of Devlin et al. 2019, of two tensors; see BertReader."""

    class BertPretraining(_transformers().BertForPreTraining):  # type: ignore[misc]
        def forward(self, inputs: Tensor) -> Any:
            return super().forward(**_bert_inputs(inputs))

        def training_loss(self, inputs: Tensor, targets: Tensor) -> Tensor:
            """Return the loss; targets [N, 1 + T]: whether the sentences follow, then masked tokens, -100 elsewhere."""
            out = self(inputs)
            follows = functional.cross_entropy(out.seq_relationship_logits.float(), targets[:, 0])
            words = out.prediction_logits.flatten(end_dim=-2).float()
            return follows + functional.cross_entropy(words, targets[:, 1:].flatten())

    return BertPretraining


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


def span_reader(**sizes: Any) -> nn.Module:
    """Return `bert_qa` as a SpanReader."""
    return SpanReader(bert_qa(**sizes))


def vit(*, width: int, layers: int, heads: int, patch: int = 16, side: int = 224, num_classes: int = 1000) -> nn.Module:
    """Return a vision transformer for square images in square patches."""
    transformers = _transformers()
    config = transformers.ViTConfig(
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=4 * width,
        patch_size=patch,
        image_size=side,
        num_labels=num_classes,
    )
    model: nn.Module = transformers.ViTForImageClassification(config)
    return model


def decoder(kind: str, **config: Any) -> nn.Module:
    """Return the causal language model `kind` ("Llama", "Qwen3Moe", ...) of transformers with such a configuration.

    Where it routes tokens to experts, that is counted as if every expert got the same number: see `_even_experts`.
    """
    transformers = _transformers()
    build = getattr(transformers, f"{kind}ForCausalLM")
    model: nn.Module = build(settings := getattr(transformers, f"{kind}Config")(use_cache=False, **config))
    if "num_experts_per_tok" in config:
        from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS

        ALL_EXPERTS_FUNCTIONS.register(EVEN, _even_experts)
        settings._experts_implementation = EVEN  # now, because constructors of transformers 5.0 refuse further names
    return model


EVEN = "even"


def _even_experts(self: Any, hidden: Tensor, chosen: Tensor, weights: Tensor) -> Tensor:
    """Return what experts make of tokens [T, width], dealt out in turns on the meta device, which has no values.

    Shapes, FLOPs and bytes are then those of any balanced routing.
    """
    if not hidden.is_meta:
        from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS

        routed: Tensor = ALL_EXPERTS_FUNCTIONS["batched_mm"](self, hidden, chosen, weights)
        return routed
    tokens, each = chosen.shape
    dealt = hidden.repeat_interleave(each, 0).view(self.num_experts, -1, hidden.shape[-1])
    transposed = getattr(self, "is_transposed", False)
    up, down = (one if transposed else one.mT for one in (self.gate_up_proj, self.down_proj))
    both = dealt @ up
    if hasattr(self, "gate_up_proj_bias"):
        both = both + self.gate_up_proj_bias[:, None]
    out = self._apply_gate(both) @ down
    if hasattr(self, "down_proj_bias"):
        out = out + self.down_proj_bias[:, None]
    found: Tensor = (out.reshape(tokens, each, -1) * weights[..., None]).sum(1)
    return found


class Transcriber(nn.Module):
    """Whisper as a function of spectrograms [N, mel bands, frames]; its logits are of a transcript of full length."""

    def __init__(self, *, width: int, layers: int, heads: int, vocabulary: int) -> None:
        super().__init__()
        transformers = _transformers()
        config = transformers.WhisperConfig(
            vocab_size=vocabulary,
            d_model=width,
            encoder_layers=layers,
            decoder_layers=layers,
            encoder_attention_heads=heads,
            decoder_attention_heads=heads,
            encoder_ffn_dim=4 * width,
            decoder_ffn_dim=4 * width,
            use_cache=False,
        )
        self.network = transformers.WhisperForConditionalGeneration(config)

    def forward(self, sound: Tensor) -> Tensor:
        """Return the logits [N, T, vocabulary] of transcripts that begin with the first token."""
        tokens = self.network.config.max_target_positions
        return self._logits(sound, sound.new_zeros(len(sound), tokens, dtype=torch.int64))

    def training_loss(self, sound: Tensor, targets: Tensor) -> Tensor:
        """Return the mean cross-entropy of transcripts [N, T], each token after those before it."""
        before = functional.pad(targets[:, :-1], (1, 0))
        return functional.cross_entropy(self._logits(sound, before).flatten(0, 1).float(), targets.flatten())

    def _logits(self, sound: Tensor, tokens: Tensor) -> Tensor:
        found: Tensor = self.network(input_features=sound, decoder_input_ids=tokens).logits
        return found


def is_pretrained(network: nn.Module) -> bool:
    """Return whether `network` is a model of transformers, which can read weights from a folder."""
    return isinstance(network, _transformers().PreTrainedModel)


def pretrained(network: Any, folder: Path) -> tuple[Any, dict[str, Any]]:
    """Return a network as `network` with the weights in `folder`, and what transformers says of its tensors.

    Its embedding has as many rows as that of `network`; "vocabulary" is how many were in the files. ConfigError, one
    line, for files that cannot be read.
    """
    transformers = _transformers()
    before = transformers.utils.logging.get_verbosity()
    transformers.utils.logging.set_verbosity(transformers.utils.logging.CRITICAL)
    try:
        found, info = type(network).from_pretrained(
            folder,
            local_files_only=True,
            output_loading_info=True,
            ignore_mismatched_sizes=True,
            dtype=torch.float32,
            num_labels=network.config.num_labels,
        )
    except Exception as error:  # safetensors, pickle, the file system and transformers all have their own
        first = str(error).strip().splitlines() or [""]
        raise ConfigError(f"model.path={folder} cannot be read: {type(error).__name__}: {first[0]}") from None
    finally:
        transformers.utils.logging.set_verbosity(before)
    info["vocabulary"] = getattr(found.config, "vocab_size", None)
    tokens = getattr(network.config, "vocab_size", None)
    if tokens != info["vocabulary"]:
        found.resize_token_embeddings(tokens, mean_resizing=False)
    return found, info


def _transformers() -> Any:
    # transformers imports torchvision on its own, and would fail on a build that our import can repair.
    import_torchvision()
    import transformers

    return transformers
