# SPDX-License-Identifier: Apache-2.0
"""CUDA IPC: the parent's tensor is opened by a child process; the bytes exist once on the device."""

import torch
import torch.multiprocessing as mp

from common import checkpoint

MIB = 1 << 20


def child(inbox, outbox):
    torch.ones(1, device="cuda")
    checkpoint("child_context")
    shared = inbox.get()
    checkpoint("child_opened", sum=float(shared[:1024].sum()))
    shared.fill_(2.0)
    torch.cuda.synchronize()
    del shared
    torch.cuda.ipc_collect()
    checkpoint("child_closed")
    outbox.put("done")


def main():
    context = mp.get_context("spawn")
    inbox, outbox = context.Queue(), context.Queue()
    process = context.Process(target=child, args=(inbox, outbox))
    process.start()
    tensor = torch.ones(128 * MIB // 4, device="cuda")
    checkpoint("parent_tensor")
    inbox.put(tensor)
    assert outbox.get(timeout=40) == "done"
    process.join(20)
    assert float(tensor[0]) == 2.0
    checkpoint("parent_after", child_status=process.exitcode)
    del tensor
    torch.cuda.ipc_collect()
    torch.cuda.empty_cache()
    checkpoint("parent_freed")


if __name__ == "__main__":
    main()
