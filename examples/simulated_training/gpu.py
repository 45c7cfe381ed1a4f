# SPDX-License-Identifier: Apache-2.0
"""A stand-in for PyTorch on a GPU: tensors that have a shape and an address,
and no values. Memory comes from a caching allocator over a simulated CUDA
driver (tests/fakes/, found through LD_LIBRARY_PATH).
"""
import ctypes

FLOAT16, FLOAT32, INT64 = 2, 4, 8  # bytes

_torch = ctypes.CDLL("libc10_cuda.so")
_torch.fake_torch_malloc.restype = ctypes.c_void_p
_torch.fake_torch_malloc.argtypes = [ctypes.c_size_t]
_torch.fake_torch_free.argtypes = [ctypes.c_void_p]
_communicators = []


class Tensor:
    """Lives as long as something refers to it, as in PyTorch."""

    def __init__(self, shape, element_bytes):
        self.shape = tuple(shape)
        self.bytes = element_bytes
        for length in self.shape:
            self.bytes *= length
        self._free = _torch.fake_torch_free
        self._address = _torch.fake_torch_malloc(self.bytes)
        if not self._address:
            raise MemoryError("the simulated GPU is full")

    def __del__(self):
        if getattr(self, "_address", None):
            self._free(self._address)


def empty(shape, element_bytes):
    return Tensor(shape, element_bytes)


def init_process_group():
    """One NCCL communicator of one rank: buffers outside of the allocator."""
    nccl = ctypes.CDLL("libnccl.so.2")
    communicator = ctypes.c_void_p()
    assert nccl.ncclCommInitAll(ctypes.byref(communicator), 1, None) == 0
    _communicators.append(communicator)


def all_reduce(tensors):
    """Nothing to add up with one rank; the bucket it copies into is real."""
    largest = max(tensor.bytes for tensor in tensors)
    return empty((largest,), 1)
