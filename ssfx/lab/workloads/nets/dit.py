"""Diffusion transformer (DiT): patches of a latent image, conditioned on step and class by adaptive layer norms.

Source: Peebles and Xie, Scalable Diffusion Models with Transformers, ICCV 2023; DiT-XL/2 is its largest.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

STEPS = 1000
"""Of the diffusion; noise grows linearly from 1e-4 to 0.02."""
FREQUENCIES = 256
"""Of the sines and cosines that a step becomes."""


def _shifted(x: Tensor, shift: Tensor, scale: Tensor) -> Tensor:
    return x * (1 + scale[:, None]) + shift[:, None]


class Block(nn.Module):
    """Attention and a perceptron on [batch, tokens, width], each shifted, scaled and gated by what it is asked for."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = (nn.LayerNorm(width, elementwise_affine=False, eps=1e-6) for _ in range(2))
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.fc1, self.fc2 = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.modulation = nn.Linear(width, 6 * width)

    def forward(self, x: Tensor, asked: Tensor) -> Tensor:
        """Return `x` after one layer; asked [batch, width]."""
        shift1, scale1, gate1, shift2, scale2, gate2 = self.modulation(functional.silu(asked)).chunk(6, dim=1)
        batch, tokens, width = x.shape
        parts = self.qkv(_shifted(self.norm1(x), shift1, scale1))
        query, key, value = parts.view(batch, tokens, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        seen = functional.scaled_dot_product_attention(query, key, value)
        x = x + gate1[:, None] * self.proj(seen.transpose(1, 2).reshape(batch, tokens, width))
        inner = functional.gelu(self.fc1(_shifted(self.norm2(x), shift2, scale2)), approximate="tanh")
        more: Tensor = gate2[:, None] * self.fc2(inner)
        return x + more


class DiT(nn.Module):
    """The network on latents [batch, 4, 32, 32]; its loss is that of the noise, the one of variances is left out."""

    positions: Tensor
    kept: Tensor
    """Of the signal after each step, as a share of its power."""

    def __init__(self, width: int, layers: int, heads: int, *, patch: int = 2, classes: int = 1000) -> None:
        super().__init__()
        size, channels = 32, 4  # of 256x256 pixels by the autoencoder of Stable Diffusion
        self.patch, self.channels, self.classes = patch, channels, classes
        self.patches = nn.Conv2d(channels, width, patch, patch)
        self.step = nn.Sequential(nn.Linear(FREQUENCIES, width), nn.SiLU(), nn.Linear(width, width))
        self.label = nn.Embedding(classes + 1, width)  # the last one is no class at all
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width, elementwise_affine=False, eps=1e-6)
        self.modulation = nn.Linear(width, 2 * width)
        self.out = nn.Linear(width, patch * patch * 2 * channels)
        positions = torch.randn((size // patch) ** 2, width, dtype=torch.float32) * 0.02
        self.register_buffer("positions", positions, persistent=False)
        kept = torch.cumprod(1 - torch.linspace(1e-4, 0.02, STEPS, dtype=torch.float32), 0)
        self.register_buffer("kept", kept, persistent=False)

    def forward(self, latents: Tensor, steps: Tensor | None = None, labels: Tensor | None = None) -> Tensor:
        """Return noise and variances [batch, 8, 32, 32]; steps and labels [batch], 0 and no class where None."""
        if steps is None:
            steps = torch.zeros(len(latents), dtype=torch.int64, device=latents.device)
        if labels is None:
            labels = torch.full_like(steps, self.classes)
        x = self.patches(latents).flatten(2).transpose(1, 2) + self.positions
        rates = torch.exp(torch.arange(FREQUENCIES // 2, device=x.device) * (-math.log(10_000) / (FREQUENCIES // 2)))
        angles = steps[:, None].float() * rates
        asked = self.step(torch.cat([angles.cos(), angles.sin()], dim=1)) + self.label(labels)
        for block in self.blocks:
            x = block(x, asked)
        shift, scale = self.modulation(functional.silu(asked)).chunk(2, dim=1)
        side = latents.shape[-1] // self.patch
        out: Tensor = self.out(_shifted(self.norm(x), shift, scale))
        out = out.view(-1, side, side, self.patch, self.patch, 2 * self.channels)
        return out.permute(0, 5, 1, 3, 2, 4).reshape(-1, 2 * self.channels, side * self.patch, side * self.patch)

    def training_loss(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """Return the mean squared error of the noise that was added to latents of the classes `targets`."""
        steps = torch.randint(0, STEPS, (len(inputs),), device=inputs.device)
        noise, kept = torch.randn_like(inputs), self.kept[steps][:, None, None, None]
        seen = self(kept.sqrt() * inputs + (1 - kept).sqrt() * noise, steps, targets)
        return functional.mse_loss(seen[:, : self.channels].float(), noise.float())
