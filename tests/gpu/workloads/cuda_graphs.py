# SPDX-License-Identifier: Apache-2.0
"""CUDA graphs: two graphs with private pools, one that shares the first one's pool, replay, and their deletion."""

import torch
from torch import nn

from common import checkpoint, note


def capture(net, example, pool=None):
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            net(example).sum().backward()
    torch.cuda.current_stream().wait_stream(stream)
    net.zero_grad(set_to_none=True)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=pool):
        out = net(example)
        out.sum().backward()
    return graph, out


def main():
    net = nn.Sequential(*[m for _ in range(4) for m in (nn.Linear(2048, 2048), nn.GELU())]).cuda()
    example = torch.randn(4096, 2048, device="cuda")
    checkpoint("model")
    note(backend=torch.cuda.get_allocator_backend())
    kept = []
    for i in range(2):
        kept.append(capture(net, example))
        checkpoint("graph_%d_private_pool" % i)
    kept.append(capture(net, example, pool=kept[0][0].pool()))
    checkpoint("graph_2_shares_pool_of_0")
    for _ in range(20):
        for graph, _ in kept:
            graph.replay()
    torch.cuda.synchronize()
    checkpoint("replayed")
    net.zero_grad(set_to_none=True)
    kept.clear()
    checkpoint("graphs_deleted")
    torch.cuda.empty_cache()
    checkpoint("emptied")


main()
