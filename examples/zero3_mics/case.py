# SPDX-License-Identifier: Apache-2.0
"""What the three programs of this case share: the reported configuration, the model, the optimizer groups.

Alone it prints the configuration that a program here gives to DeepSpeed:
    python3 case.py WORLD [--no-mics] [KEY=VALUE of zero_optimization ...]
"""

import json
import os
import sys


def flag(name, default):
    return os.environ.get(name, default) == "1"


def number(name, default):
    return int(float(os.environ.get(name, default)))


def load_config(world, mics=True, **zero_changes):
    """The reported deepspeed_config.json (its missing comma put in), with the report's own change of the shard size."""
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "deepspeed_config.json"), encoding="utf-8") as f:
        config = json.load(f)
    config["train_batch_size"] = 4 * 4 * world  # micro batch 4, accumulation 4, as 64 on 4 GPUs
    zero = config["zero_optimization"]
    zero.update(zero_changes)
    if mics:
        zero["mics_shard_size"] = world
    else:
        zero.pop("mics_shard_size")
        zero.pop("mics_hierarchical_params_gather")
    return config


def bare_bloom(vocab, hidden, layers):
    """BloomForCausalLM as from_pretrained builds it: constructed, not initialized, output weights tied."""
    from transformers import BloomConfig, BloomForCausalLM, BloomModel

    kept = [(c, c.__dict__.get("post_init")) for c in (BloomForCausalLM, BloomModel)]
    for c, _ in kept:
        c.post_init = lambda self: None
    try:
        return BloomForCausalLM(BloomConfig(vocab_size=vocab, hidden_size=hidden, n_layer=layers, n_head=hidden // 128))
    finally:
        for c, own in kept:
            if own is None:
                del c.post_init
            else:
                c.post_init = own


def tie(model):
    model.lm_head.weight = model.transformer.word_embeddings.weight


def optimizer_groups(model, weight_decay=0.0):
    """The report's grouping; its name filter does not match BLOOM's layer norms (harmless for memory)."""
    decayed, plain = [], []
    for name, p in model.named_parameters():
        if p.requires_grad:
            (plain if any(n in name for n in ("bias", "LayerNorm.weight")) else decayed).append(p)
    return [{"params": decayed, "weight_decay": weight_decay}, {"params": plain, "weight_decay": 0.0}]


def adamw(model):
    import torch

    return torch.optim.AdamW(optimizer_groups(model), lr=2e-5, betas=[0.9, 0.95])


def print_config(words):
    changes = dict(word.split("=", 1) for word in words[1:] if "=" in word)
    config = load_config(int(words[0]), mics="--no-mics" not in words,
                         **{key: value if value == "auto" else json.loads(value) for key, value in changes.items()})
    print(json.dumps(config, indent=2))


if __name__ == "__main__":
    print_config(sys.argv[1:])
