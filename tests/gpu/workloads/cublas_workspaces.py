# SPDX-License-Identifier: Apache-2.0
"""What the math libraries take for themselves: cuBLAS and cuBLASLt on several streams, cuDNN, cuSOLVER, cuFFT."""

import torch
import torch.nn.functional as F

from common import checkpoint


def main():
    a = torch.randn(2048, 2048, device="cuda")
    checkpoint("tensors")
    a @ a
    torch.cuda.synchronize()
    checkpoint("cublas_fp32")
    half = a.half()
    half @ half
    torch.cuda.synchronize()
    checkpoint("cublas_fp16")
    for i in range(3):
        with torch.cuda.stream(torch.cuda.Stream()):
            half @ half
            torch.cuda.synchronize()
        checkpoint("cublas_stream_%d" % i)
    F.linear(half, half, half[0])
    torch.cuda.synchronize()
    checkpoint("cublaslt_bias")
    F.conv2d(torch.randn(8, 64, 56, 56, device="cuda"), torch.randn(64, 64, 3, 3, device="cuda"), padding=1)
    torch.cuda.synchronize()
    checkpoint("cudnn_conv")
    torch.linalg.eigh(a[:512, :512] @ a[:512, :512].t())
    torch.cuda.synchronize()
    checkpoint("cusolver_eigh")
    torch.fft.fft2(a)
    torch.cuda.synchronize()
    checkpoint("cufft")
    torch._C._cuda_clearCublasWorkspaces()
    checkpoint("cublas_workspaces_cleared")
    torch.backends.cuda.cufft_plan_cache.clear()
    checkpoint("cufft_plans_cleared")


main()
