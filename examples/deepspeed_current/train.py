# SPDX-License-Identifier: Apache-2.0
"""Three steps of a decoder under ZeRO-3 of a current DeepSpeed (0.19), on random weights and tokens.

    python3 train.py --offload none|optimizer|both [--config FILE] [--optimizer torch|deepspeed]

  --offload optimizer   fp32 weights, Adam states and gradients on the host
  --offload both        the 16-bit weights as well
  --config FILE         where the configuration goes, for `dstrace-report run.pb --deepspeed FILE --params N`
  --optimizer deepspeed DeepSpeed's own FusedAdam or DeepSpeedCPUAdam, which compiles it at the first run (needs nvcc);
                        torch's AdamW otherwise, on the host too: "zero_force_ds_cpu_optimizer": false allows that

One GPU: LD_PRELOAD=libdstrace.so python3 train.py; several: python3 -m torch.distributed.run --nproc_per_node N train.py
"""

import argparse
import json
import os
import socket
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn

try:
    import distutils  # noqa: F401  (DeepSpeed's kernel builders import it; gone from Python 3.12's standard library)
except ImportError:
    import setuptools  # noqa: F401  (brings its own)
import deepspeed
from deepspeed.accelerator import get_accelerator


class Block(nn.Module):
    """One layer of a GPT-like decoder: attention over all heads at once, then a wide linear pair."""

    def __init__(self, hidden, heads):
        super().__init__()
        self.heads = heads
        self.norm_attention = nn.LayerNorm(hidden)
        self.query_key_value = nn.Linear(hidden, 3 * hidden)
        self.dense = nn.Linear(hidden, hidden)
        self.norm_mlp = nn.LayerNorm(hidden)
        self.widen = nn.Linear(hidden, 4 * hidden)
        self.narrow = nn.Linear(4 * hidden, hidden)

    def forward(self, x):
        batch, length, hidden = x.shape
        mixed = self.query_key_value(self.norm_attention(x)).view(batch, length, 3, self.heads, hidden // self.heads)
        query, key, value = (part.transpose(1, 2) for part in mixed.unbind(2))
        attended = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.dense(attended.transpose(1, 2).reshape(batch, length, hidden))
        return x + self.narrow(F.gelu(self.widen(self.norm_mlp(x))))


class Decoder(nn.Module):
    def __init__(self, vocabulary, hidden, layers, heads):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, hidden)
        self.layers = nn.ModuleList(Block(hidden, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(hidden)
        self.head = nn.Linear(hidden, vocabulary, bias=False)

    def forward(self, tokens):
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())


def make_config(args, world):
    hidden = args.hidden
    zero = {
        "stage": 3,
        "overlap_comm": True,
        "contiguous_gradients": True,
        "sub_group_size": args.sub_group_size,
        "reduce_bucket_size": hidden * hidden,
        "stage3_prefetch_bucket_size": hidden * hidden * 9 // 10,
        "stage3_param_persistence_threshold": 10 * hidden,
    }
    if args.offload != "none":
        zero["offload_optimizer"] = {"device": "cpu", "pin_memory": True}
    if args.offload == "both":
        zero["offload_param"] = {"device": "cpu", "pin_memory": True}
    config = {
        "train_batch_size": args.batch * world,
        "train_micro_batch_size_per_gpu": args.batch,
        "gradient_accumulation_steps": 1,
        "gradient_clipping": 1.0,
        "bf16": {"enabled": True},
        "zero_optimization": zero,
    }
    if args.optimizer == "deepspeed":
        config["optimizer"] = {"type": "AdamW", "params": {"lr": 1e-4}}
    elif args.offload != "none":
        config["zero_force_ds_cpu_optimizer"] = False
    return config


def emit(word, **fields):
    fields.update(rank=int(os.environ["RANK"]), pid=os.getpid())
    os.write(1, ("%s %s\n" % (word, json.dumps(fields, sort_keys=True))).encode())


def checkpoint(step, **extra):
    """What PyTorch and the driver hold, to compare a trace with; nothing without a GPU."""
    if not torch.cuda.is_available():
        return emit("CHECKPOINT", step=step, devices=[], **extra)
    torch.cuda.synchronize()
    stats = torch.cuda.memory_stats()
    host = torch.cuda.host_memory_stats() if hasattr(torch.cuda, "host_memory_stats") else {}
    free, total = torch.cuda.mem_get_info()
    state = {
        "device": torch.cuda.current_device(), "used": total - free, "total": total,
        "allocated": stats.get("allocated_bytes.all.current", 0),
        "reserved": stats.get("reserved_bytes.all.current", 0),
        "peak_allocated": stats.get("allocated_bytes.all.peak", 0),
        "peak_reserved": stats.get("reserved_bytes.all.peak", 0),
    }
    emit("CHECKPOINT", step=step, mono_ns=time.clock_gettime_ns(time.CLOCK_MONOTONIC), devices=[state],
         host={key: value for key, value in host.items() if key.endswith((".current", ".peak"))}, **extra)
    return None


def one_rank_environment():
    """The variables torchrun would set, for a run of one rank without it."""
    if "RANK" in os.environ:
        return
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    os.environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE="1", LOCAL_WORLD_SIZE="1", MASTER_ADDR="127.0.0.1",
                      MASTER_PORT=str(port))


def build(args, config):
    """The model, each parameter partitioned as soon as it is made."""
    with deepspeed.zero.Init(config_dict_or_path=config):
        return Decoder(args.vocabulary, args.hidden, args.layers, args.hidden // args.head_size)


def train(engine, args):
    device = get_accelerator().current_device_name()
    for step in range(args.steps):
        tokens = torch.randint(args.vocabulary, (args.batch, args.length), device=device)
        loss = engine(tokens)
        checkpoint("forward_%d" % step)
        engine.backward(loss)
        checkpoint("backward_%d" % step)
        engine.step()
        checkpoint("step_%d" % step, loss=loss.item())


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--offload", choices=("none", "optimizer", "both"), default="none")
    parser.add_argument("--optimizer", choices=("torch", "deepspeed"), default="torch")
    parser.add_argument("--config")
    parser.add_argument("--vocabulary", type=int, default=32768)
    parser.add_argument("--hidden", type=int, default=2048)
    parser.add_argument("--head_size", type=int, default=128)
    parser.add_argument("--layers", type=int, default=16)
    parser.add_argument("--sub_group_size", type=lambda text: int(float(text)), default=10**8)
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--steps", type=int, default=3)
    return parser.parse_args()


def main():
    args = arguments()
    one_rank_environment()
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    world = int(os.environ["WORLD_SIZE"])
    config = make_config(args, world)
    if args.config and os.environ["RANK"] == "0":
        with open(args.config, "w", encoding="utf-8") as f:
            json.dump(config, f, indent=1)
            f.write("\n")
    torch.manual_seed(0)
    deepspeed.init_distributed()
    checkpoint("init_distributed", deepspeed=deepspeed.__version__, torch=torch.__version__)
    model = build(args, config)
    parameters = sum(p.ds_numel for p in model.parameters())
    checkpoint("end_of_load", parameters=parameters, world=world, largest=max(p.ds_numel for p in model.parameters()))
    optimizer = None if args.optimizer == "deepspeed" else torch.optim.AdamW(model.parameters(), lr=1e-4)
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=config,
                                      model_parameters=None if optimizer else model.parameters())
    checkpoint("initialized")
    train(engine, args)
    emit("NOTE", parameters=parameters, offload=args.offload, optimizer=type(engine.optimizer.optimizer).__name__)
    sys.stdout.flush()
    os._exit(0)  # no teardown: the trace ends with training


main()
