# SPDX-License-Identifier: Apache-2.0
"""Training through torch.cuda.memory.CUDAPluggableAllocator: a library of the program's own that calls cudaMalloc.

PyTorch keeps no account of such memory, and reports no tensors: what the trace holds is the allocator's own calls. The
library counts them; each CHECKPOINT says what it counted, for the trace to be held against.
"""

import ctypes
import os
import subprocess
import tempfile

import torch

from common import checkpoint, driver_used, note

SOURCE = r"""
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <unordered_map>

extern "C" int cudaMalloc(void**, size_t);
extern "C" int cudaFree(void*);
extern "C" int cudaSetDevice(int);

namespace {
std::mutex g_mutex;
std::unordered_map<void*, size_t> g_live;
int64_t g_bytes, g_peak, g_allocs, g_frees;
}  // namespace

extern "C" void* program_alloc(ptrdiff_t size, int device, void*) {
  if (size == 0) return nullptr;
  void* pointer = nullptr;
  cudaSetDevice(device);
  if (cudaMalloc(&pointer, size) != 0) return nullptr;
  std::lock_guard<std::mutex> lock(g_mutex);
  g_live[pointer] = size;
  g_bytes += size;
  ++g_allocs;
  if (g_bytes > g_peak) g_peak = g_bytes;
  return pointer;
}

extern "C" void program_free(void* pointer, ptrdiff_t, int, void*) {
  {
    std::lock_guard<std::mutex> lock(g_mutex);
    auto found = g_live.find(pointer);
    if (found == g_live.end()) return;
    g_bytes -= found->second;
    ++g_frees;
    g_live.erase(found);
  }
  cudaFree(pointer);
}

extern "C" void program_counts(int64_t out[4]) {
  std::lock_guard<std::mutex> lock(g_mutex);
  out[0] = g_bytes, out[1] = g_peak, out[2] = g_allocs, out[3] = g_frees;
}
"""


def runtime_path():
    """The libcudart that PyTorch is linked to."""
    with open("/proc/self/maps") as maps:
        for line in maps:
            if "libcudart" in line:
                return line.split(maxsplit=5)[5].strip()
    raise SystemExit("PyTorch has no libcudart of its own")


def build(folder):
    source, library = os.path.join(folder, "allocator.cc"), os.path.join(folder, "libprogram_allocator.so")
    with open(source, "w") as file:
        file.write(SOURCE)
    runtime = runtime_path()
    subprocess.run(["g++", "-O1", "-g", "-shared", "-fPIC", source, runtime, "-o", library,
                    "-Wl,-rpath," + os.path.dirname(runtime)], check=True)
    return library


def main():
    with tempfile.TemporaryDirectory() as folder:
        path = build(folder)
        torch.cuda.memory.change_current_allocator(
            torch.cuda.memory.CUDAPluggableAllocator(path, "program_alloc", "program_free"))
        library = ctypes.CDLL(path)

        def state(step):
            torch.cuda.synchronize()
            counts = (ctypes.c_int64 * 4)()
            library.program_counts(counts)
            checkpoint(step, devices=[], driver_used=driver_used(), pool_used=counts[0], pool_peak=counts[1],
                       allocations=counts[2], frees=counts[3])

        torch.manual_seed(0)
        net = torch.nn.Sequential(*[torch.nn.Linear(1024, 1024) for _ in range(8)]).cuda()
        state("model")
        optimizer = torch.optim.AdamW(net.parameters(), foreach=False)
        for step in range(4):
            loss = net(torch.randn(512, 1024, device="cuda")).square().mean()
            state("forward_%d" % step)
            loss.backward()
            state("backward_%d" % step)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            state("step_%d" % step)
        note(loss=loss.item())
        del net, optimizer, loss
        state("deleted")


main()
