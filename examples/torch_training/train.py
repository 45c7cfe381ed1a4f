# SPDX-License-Identifier: Apache-2.0
"""A few steps of a small transformer on the GPU, with nothing of dstrace in it.

    LD_PRELOAD=libdstrace.so python3 examples/torch_training/train.py
    dstrace-report dstrace-*.pb
"""
import torch
from torch import nn

HIDDEN, LAYERS, HEADS, VOCABULARY = 1024, 4, 16, 32000
BATCH, SEQUENCE, STEPS = 4, 512, 10


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, HIDDEN)
        layer = nn.TransformerEncoderLayer(HIDDEN, HEADS, 4 * HIDDEN, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, LAYERS)
        self.head = nn.Linear(HIDDEN, VOCABULARY, bias=False)

    def forward(self, tokens):
        return self.head(self.layers(self.embedding(tokens)))


def train_step(model, optimizer, tokens):
    logits = model(tokens)
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens.flatten())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return loss.item()


def main():
    model = Model().cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    tokens = torch.randint(VOCABULARY, (BATCH, SEQUENCE), device="cuda")
    for step in range(STEPS):
        print("step %d: loss %.3f" % (step, train_step(model, optimizer, tokens)))


if __name__ == "__main__":
    main()
