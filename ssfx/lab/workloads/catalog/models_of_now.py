"""Models that are trained in 2026, by the configurations that their authors published; random weights, no downloads.

Batch sizes and sequences are those of single devices in public recipes: `Sample` has the sequences.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ssfx.lab.workloads.base import Model, models, network

if TYPE_CHECKING:
    from torch import nn


def _decoder(kind: str, **config: Any) -> Callable[[], nn.Module]:
    return network("hugging_face.decoder", kind=kind, **config)


def _qwen3(width: int, layers: int, heads: int, inner: int, *, tied: bool) -> Callable[[], nn.Module]:
    return _decoder(
        "Qwen3", vocab_size=151936, hidden_size=width, num_hidden_layers=layers, num_attention_heads=heads,
        num_key_value_heads=8, head_dim=128, intermediate_size=inner, tie_word_embeddings=tied,
    )  # fmt: skip


_LLAMA3_8B = _decoder(
    "Llama", vocab_size=128256, hidden_size=4096, num_hidden_layers=32, num_attention_heads=32, num_key_value_heads=8,
    intermediate_size=14336, tie_word_embeddings=False,
)  # fmt: skip
_QWEN3_30B_A3B = _decoder(
    "Qwen3Moe", vocab_size=151936, hidden_size=2048, num_hidden_layers=48, num_attention_heads=32,
    num_key_value_heads=4, head_dim=128, num_experts=128, num_experts_per_tok=8, moe_intermediate_size=768,
    tie_word_embeddings=False,
)  # fmt: skip
_OLMOE = _decoder(
    "Olmoe", vocab_size=50304, hidden_size=2048, num_hidden_layers=16, num_attention_heads=16, num_key_value_heads=16,
    num_experts=64, num_experts_per_tok=8, intermediate_size=1024, tie_word_embeddings=False,
)  # fmt: skip
_GPT_OSS = _decoder(
    "GptOss", vocab_size=201088, hidden_size=2880, num_hidden_layers=24, num_attention_heads=64, num_key_value_heads=8,
    head_dim=64, num_local_experts=32, num_experts_per_tok=4, intermediate_size=2880, tie_word_embeddings=False,
)  # fmt: skip

for _model in (
    Model("llama3_8b", "Llama 3 8B, 8030.3 M parameters", "Llama 3 tokens", _LLAMA3_8B, 1,
          "transformers LlamaForCausalLM; meta-llama/Meta-Llama-3-8B", 8192, fused_attention=True, recompute=True),
    Model("qwen3_8b", "Qwen3-8B, 8190.7 M parameters", "Qwen3 tokens", _qwen3(4096, 36, 32, 12288, tied=False), 1,
          "transformers Qwen3ForCausalLM; Qwen/Qwen3-8B", 32768, fused_attention=True, recompute=True),
    Model("qwen3_1_7b", "Qwen3-1.7B with a tied head, 1720.6 M parameters", "Qwen3 tokens",
          _qwen3(2048, 28, 16, 6144, tied=True), 1, "transformers Qwen3ForCausalLM; Qwen/Qwen3-1.7B", 32768,
          fused_attention=True),
    Model("qwen3_30b_a3b", "Qwen3-30B-A3B, 128 experts of which a token has 8, 30532.1 M parameters", "Qwen3 tokens",
          _QWEN3_30B_A3B, 1, "transformers Qwen3MoeForCausalLM; Qwen/Qwen3-30B-A3B", 32768, fused_attention=True,
          recompute=True),
    Model("olmoe_1b_7b", "OLMoE-1B-7B, 64 experts of which a token has 8, 6919.2 M parameters", "OLMoE tokens",
          _OLMOE, 1, "transformers OlmoeForCausalLM; allenai/OLMoE-1B-7B-0924", 4096, fused_attention=True,
          recompute=True),
    Model("gpt_oss_20b", "GPT-OSS-20B, 32 experts of which a token has 4, 20914.8 M parameters", "GPT-OSS tokens",
          _GPT_OSS, 1, "transformers GptOssForCausalLM; openai/gpt-oss-20b", 131072, recompute=True),
    Model("vit_huge", "ViT-H/14 with a 1000-class head, 632.0 M parameters", "RGB images 3x224x224 of 1000 classes",
          network("hugging_face.vit", width=1280, layers=32, heads=16, patch=14), 64,
          "transformers ViTForImageClassification; google/vit-huge-patch14-224-in21k",
          fused_attention=True),
    Model("dit_xl", "DiT-XL/2 on latents of 256x256, 674.8 M trained parameters", "latents 4x32x32 of 1000 classes",
          network("dit.DiT", width=1152, layers=28, heads=16), 32,
          "Peebles and Xie, ICCV 2023; github.com/facebookresearch/DiT", fused_attention=True),
    Model("whisper_large", "Whisper large-v2, 1541.4 M trained parameters", "spectrograms of 30 s with transcripts",
          network("hugging_face.Transcriber", width=1280, layers=32, heads=20, vocabulary=51865), 8,
          "transformers WhisperForConditionalGeneration; openai/whisper-large-v2",
          fused_attention=True, recompute=True),
):  # fmt: skip
    models.add(_model)
