"""Decoding by a small language model of TinyLlama's shape, with 1.1 billion random weights.

An iteration computes the token that follows a context of fixed length. It reads all weights and the cache of keys and
values to multiply a few vectors, so it is bound by memory bandwidth. Its latency is the time between two tokens.

Params: `context` (tokens in the cache), `layers`, `batch` (sequences, and so tokens per iteration), `dtype` (float32,
tf32, float16, bfloat16), `graph` (CUDA only: replay one captured graph).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import rms_norm, scaled_dot_product_attention, silu

from tenant.gpu.models import COMMON_DEFAULTS, Draw, ModelWorkload
from tenant.parameters import Params, with_defaults

FRAMEWORKS = {"cpu": ("torch",), "cuda": ("torch",)}
HIDDEN, INNER, VOCABULARY = 2048, 5632, 32_000
HEADS, KEY_HEADS, HEAD = 32, 4, 64
ROTATION_BASE = 10_000.0
NORM_EPSILON = 1e-5


class Layer(nn.Module):  # type: ignore[misc]
    """One transformer block for the token after `context` cached ones, with its cache of keys and values."""

    def __init__(self, draw: Draw, batch: int, context: int) -> None:
        super().__init__()
        self.query_key_value = draw.matrix((HEADS + 2 * KEY_HEADS) * HEAD, HIDDEN)
        self.out = draw.matrix(HIDDEN, HEADS * HEAD)
        self.gate_up = draw.matrix(2 * INNER, HIDDEN)
        self.down = draw.matrix(HIDDEN, INNER)
        # The last position is the new token's.
        self.keys, self.values = (draw(batch, KEY_HEADS, context + 1, HEAD) for _ in range(2))

    def forward(self, hidden: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
        """Hidden state of the new token (batch, HIDDEN) after this block."""
        batch = hidden.shape[0]
        heads = (_norm(hidden) @ self.query_key_value.T).view(batch, -1, 1, HEAD)
        query, key, value = heads.split((HEADS, KEY_HEADS, KEY_HEADS), dim=1)
        self.keys[:, :, -1:] = _rotate(key, cosine, sine)
        self.values[:, :, -1:] = value
        query = _rotate(query, cosine, sine)
        attended = scaled_dot_product_attention(query, self.keys, self.values, enable_gqa=True)
        hidden = hidden + attended.reshape(batch, HEADS * HEAD) @ self.out.T
        gate, up = (_norm(hidden) @ self.gate_up.T).chunk(2, dim=-1)
        return hidden + (silu(gate) * up) @ self.down.T


def _norm(hidden: Tensor) -> Tensor:
    return rms_norm(hidden, (HIDDEN,), eps=NORM_EPSILON)


def _rotate(heads: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    left, right = heads.chunk(2, dim=-1)
    return heads * cosine + torch.cat((-right, left), dim=-1) * sine


class Decoder(nn.Module):  # type: ignore[misc]
    """Computes the next token's logits (batch, VOCABULARY) from token ids (batch,)."""

    def __init__(self, draw: Draw, layers: int, batch: int, context: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, HIDDEN, _weight=draw(VOCABULARY, HIDDEN))
        self.layers = nn.ModuleList(Layer(draw, batch, context) for _ in range(layers))
        self.head = draw.matrix(VOCABULARY, HIDDEN)
        angle = context * ROTATION_BASE ** (-torch.arange(0, HEAD, 2, dtype=torch.float64) / HEAD)
        angle = torch.cat((angle, angle))
        self.register_buffer("cosine", angle.cos().to(self.head))
        self.register_buffer("sine", angle.sin().to(self.head))

    def forward(self, tokens: Tensor) -> Tensor:
        hidden = self.embedding(tokens)
        for layer in self.layers:
            hidden = layer(hidden, self.cosine, self.sine)
        return _norm(hidden) @ self.head.T


class LlmDecode(ModelWorkload):
    """Decodes the same token at the same position each time, so that all iterations have equal work and output."""

    def __init__(self, device: str, layers: int, context: int, **common: Any) -> None:
        super().__init__(device, **common)
        with self.building():
            model = Decoder(Draw(self.device, self.torch_dtype), layers, self.batch, context)
            tokens = torch.randint(VOCABULARY, (self.batch,), generator=torch.Generator().manual_seed(0))
            cache = tuple(tensor for layer in model.layers for tensor in (layer.keys, layer.values))
            self.prepare_model(model, {"tokens": tokens.to(self.device)}, state=cache)


def create(params: Params, device: str) -> LlmDecode:
    return LlmDecode(device, **with_defaults(params, {**COMMON_DEFAULTS, "layers": 22, "context": 1024}, "llm_decode"))
