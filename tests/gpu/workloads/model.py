# SPDX-License-Identifier: Apache-2.0
"""A decoder of BLOOM's shape in plain PyTorch: fused QKV, ALiBi, LayerNorm, GELU, tied output weights."""

import torch
import torch.nn.functional as F
from torch import nn


class Attention(nn.Module):
    def __init__(self, hidden, heads):
        super().__init__()
        self.heads = heads
        self.query_key_value = nn.Linear(hidden, 3 * hidden)
        self.dense = nn.Linear(hidden, hidden)

    def forward(self, x, bias):
        batch, length, hidden = x.shape
        fused = self.query_key_value(x).view(batch, length, self.heads, 3, hidden // self.heads)
        query, key, value = (t.transpose(1, 2) for t in fused.unbind(3))
        scores = query @ key.transpose(-1, -2) / (hidden // self.heads) ** 0.5 + bias
        mixed = scores.softmax(-1) @ value
        return self.dense(mixed.transpose(1, 2).reshape(batch, length, hidden))


class Block(nn.Module):
    def __init__(self, hidden, heads):
        super().__init__()
        self.input_layernorm = nn.LayerNorm(hidden)
        self.self_attention = Attention(hidden, heads)
        self.post_attention_layernorm = nn.LayerNorm(hidden)
        self.dense_h_to_4h = nn.Linear(hidden, 4 * hidden)
        self.dense_4h_to_h = nn.Linear(4 * hidden, hidden)

    def forward(self, x, bias):
        x = x + self.self_attention(self.input_layernorm(x), bias)
        h = F.gelu(self.dense_h_to_4h(self.post_attention_layernorm(x)), approximate="tanh")
        return x + self.dense_4h_to_h(h)


class Decoder(nn.Module):
    def __init__(self, vocab, hidden, layers, heads):
        super().__init__()
        self.heads = heads
        self.word_embeddings = nn.Embedding(vocab, hidden)
        self.word_embeddings_layernorm = nn.LayerNorm(hidden)
        self.h = nn.ModuleList(Block(hidden, heads) for _ in range(layers))
        self.ln_f = nn.LayerNorm(hidden)

    def alibi(self, length, dtype, device):
        slopes = 2.0 ** (-8.0 / self.heads * torch.arange(1, self.heads + 1, device=device))
        positions = torch.arange(length, device=device)
        bias = slopes[:, None, None] * (positions[None, :] - positions[:, None])
        causal = torch.full((length, length), float("-inf"), device=device).triu(1)
        return (bias + causal).to(dtype)

    def forward(self, tokens):
        x = self.word_embeddings_layernorm(self.word_embeddings(tokens))
        bias = self.alibi(tokens.shape[1], x.dtype, x.device)
        for block in self.h:
            x = block(x, bias)
        logits = self.ln_f(x) @ self.word_embeddings.weight.t()
        return F.cross_entropy(logits[:, :-1].flatten(0, 1).float(), tokens[:, 1:].flatten())
