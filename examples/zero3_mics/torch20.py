# SPDX-License-Identifier: Apache-2.0
"""EMULATION of torch 2.0's collectives on a newer torch; label every figure made with it as such.

Up to torch 2.7 a NCCL collective runs on a stream of its own and calls record_stream on its tensors: a buffer freed
afterwards cannot be reused until the collective has run, while the host goes on. Newer releases do neither. install()
wraps the three collectives that ZeRO-3 uses while it loads:

  - each runs on a side stream, and its tensors are record_stream'ed there;
  - the all_gather into a list first gathers into a flat copy, as c10d did;
  - `bandwidth_gb` > 0 keeps the side stream busy as long as a link of that many GB/s would, by spinning.
"""

import torch
import torch.distributed as dist

_CYCLES_PER_SECOND = 1.9e9  # of torch.cuda._sleep on an H200; only sets the emulated link's speed


class _Done:
    """What an asynchronous collective returns: later work on the current stream already waits for it."""

    def wait(self):
        return True

    def is_completed(self):
        return True


def install(bandwidth_gb=0.0):
    side = torch.cuda.Stream()
    broadcast, gather_into = dist.broadcast, dist.all_gather_into_tensor

    def on_side_stream(tensors, collective):
        current = torch.cuda.current_stream()
        side.wait_stream(current)
        with torch.cuda.stream(side):
            if bandwidth_gb:
                moved = sum(t.numel() * t.element_size() for t in tensors)
                torch.cuda._sleep(int(moved / (bandwidth_gb * 1e9) * _CYCLES_PER_SECOND))
            collective()
        for t in tensors:
            t.record_stream(side)
        current.wait_stream(side)

    def emulated_broadcast(tensor, src=0, group=None, async_op=False, **kwargs):
        on_side_stream([tensor.data], lambda: broadcast(tensor.data, src, group=group))
        return _Done() if async_op else None

    def emulated_all_gather(tensor_list, tensor, group=None, async_op=False):
        flat = torch.empty(sum(t.numel() for t in tensor_list), dtype=tensor.dtype, device=tensor.device)
        on_side_stream([flat, tensor], lambda: gather_into(flat, tensor, group=group))
        with torch.cuda.stream(side):
            for out, part in zip(tensor_list, flat.split([t.numel() for t in tensor_list])):
                out.copy_(part.view_as(out))
        for out in tensor_list:
            out.record_stream(side)
        torch.cuda.current_stream().wait_stream(side)
        return _Done() if async_op else None

    def emulated_gather_into(output_tensor, input_tensor, group=None, async_op=False):
        on_side_stream([output_tensor, input_tensor], lambda: gather_into(output_tensor, input_tensor, group=group))
        return _Done() if async_op else None

    dist.broadcast = emulated_broadcast
    dist.all_gather = emulated_all_gather
    dist.all_gather_into_tensor = emulated_gather_into
    dist.distributed_c10d.all_gather_into_tensor = emulated_gather_into
