# SPDX-License-Identifier: Apache-2.0
"""Training of a small BLOOM-like model with AdamW on random data, a CHECKPOINT after each phase of each step.

--nccl averages the gradients over two communicators in turn (alone: world of one; under torchrun: one rank a GPU).
"""

import argparse

import torch
import torch.distributed as dist

from common import checkpoint, init_nccl, note
from model import Decoder


def average_gradients(model, groups):
    for i, p in enumerate(model.parameters()):
        dist.all_reduce(p.grad, group=groups[i % len(groups)])
        p.grad /= dist.get_world_size()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--hidden", type=int, default=1024)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--heads", type=int, default=16)
    parser.add_argument("--vocab", type=int, default=32768)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--nccl", action="store_true")
    args = parser.parse_args()

    torch.manual_seed(0)
    checkpoint("imported")
    groups = []
    if args.nccl:
        init_nccl()
    first = torch.ones(1, device="cuda")
    checkpoint("first_tensor")
    note(backend=torch.cuda.get_allocator_backend(), torch=torch.__version__, gpu=torch.cuda.get_device_name())
    if args.nccl:
        dist.all_reduce(first)
        torch.cuda.synchronize()
        checkpoint("communicator_1")
        groups = [dist.group.WORLD, dist.new_group(list(range(dist.get_world_size())))]
        dist.all_reduce(first, group=groups[1])
        torch.cuda.synchronize()
        checkpoint("communicator_2")

    model = Decoder(args.vocab, args.hidden, args.layers, args.heads).cuda()
    checkpoint("model", parameters=sum(p.numel() for p in model.parameters()))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for step in range(args.steps):
        tokens = torch.randint(args.vocab, (args.batch, args.length), device="cuda")
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = model(tokens)
        checkpoint("forward_%d" % step)
        loss.backward()
        checkpoint("backward_%d" % step)
        if groups:
            average_gradients(model, groups)
            checkpoint("allreduce_%d" % step)
        optimizer.step()
        checkpoint("step_%d" % step)
        optimizer.zero_grad(set_to_none=True)
    torch.cuda.synchronize()
    checkpoint("trained", loss=loss.item())
    del model, optimizer, loss, tokens
    checkpoint("deleted")
    torch.cuda.empty_cache()
    checkpoint("emptied")
    if args.nccl:
        dist.destroy_process_group()
        checkpoint("communicators_destroyed")


main()
