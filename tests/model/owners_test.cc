// SPDX-License-Identifier: Apache-2.0
#include "analyzer/model/owners.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace dstrace::model {
namespace {

TEST(OwnerOfModule, NamesLibrariesByFile) {
  EXPECT_EQ(OwnerOfModule("/x/torch/lib/libc10_cuda.so"), "torch");
  EXPECT_EQ(OwnerOfModule("/x/torch/lib/libtorch_cuda.so"), "torch");
  EXPECT_EQ(OwnerOfModule(
                "/usr/lib/python3/site-packages/nvidia/nccl/lib/libnccl.so.2"),
            "nccl");
  EXPECT_EQ(OwnerOfModule("/x/libcublas.so.13"), "cublas");
  EXPECT_EQ(OwnerOfModule("/x/libcublasLt.so.13"), "cublasLt");
  EXPECT_EQ(OwnerOfModule("/x/libcudnn_engines_precompiled.so.9"), "cudnn");
  EXPECT_EQ(OwnerOfModule("/x/libnvshmem_host.so.3 (deleted)"), "nvshmem");
}

TEST(OwnerOfModule, PassesOverTheWayToTheDriver) {
  for (const char* const path :
       {"/usr/lib/libcuda.so.580.159.03", "/x/libcudart.so.13",
        "/lib/x86_64-linux-gnu/libc.so.6", "/p/lib/libdstrace.so",
        "/lib64/ld-linux-x86-64.so.2", "/lib/libstdc++.so.6"}) {
    EXPECT_EQ(OwnerOfModule(path), "") << path;
  }
}

TEST(OwnerOfModule, NamesPythonExtensionsByPackage) {
  EXPECT_EQ(OwnerOfModule("/v/lib/python3.11/site-packages/cupy_backends/cuda/"
                          "api/runtime.cpython-311-x86_64-linux-gnu.so"),
            "cupy");
  EXPECT_EQ(OwnerOfModule("/v/lib/python3.11/site-packages/jaxlib/xla_x.so"),
            "jax");
  EXPECT_EQ(OwnerOfModule("/home/u/.triton/cache/abc/launcher.so"), "triton");
  EXPECT_EQ(OwnerOfModule("/v/lib/python3.11/site-packages/vllm/_C.abi3.so"),
            "vllm");
  EXPECT_EQ(OwnerOfModule("/v/dist-packages/nvidia/foo/lib/libbar.so.1"),
            "foo");
}

TEST(OwnerOfModule, FallsBackToTheFileName) {
  EXPECT_EQ(OwnerOfModule("/opt/my/libsolver.so.3.1"), "solver");
  EXPECT_EQ(OwnerOfModule("/opt/my/train"), "train");
  EXPECT_EQ(OwnerOfModule("/usr/bin/python3.11"), "python");
}

// ctypes has no library of its own below Python: its caller is the owner.
TEST(Owners, BehindCtypesItIsThePythonCodeThatCalled) {
  Stacks stacks;
  stacks.modules.emplace_back().path = "/x/libcudart.so.13";
  stacks.modules.emplace_back().path =
      "/p/lib-dynload/_ctypes.cpython-312-x86_64-linux-gnu.so";
  stacks.modules.emplace_back().path = "/x/libc10_cuda.so";
  stacks.frames.resize(5);
  for (int i = 0; i < 3; ++i) stacks.frames[static_cast<size_t>(i)].module = i;
  for (const size_t i : {size_t{3}, size_t{4}}) {
    stacks.frames[i].kind = Frame::Kind::kPython;
    stacks.frames[i].module = -1;
  }
  stacks.frames[3].file = "/home/u/train.py";
  stacks.frames[4].file = "/v/lib/python3.11/site-packages/pycuda/driver.py";
  stacks.stacks.resize(4);
  stacks.stacks[1].frames = {0, 1, 3, 4};
  stacks.stacks[2].frames = {0, 1, 4, 3};
  stacks.stacks[3].frames = {0, 3, 4};  // not by ctypes: nobody is known
  Owners owners(stacks);

  EXPECT_EQ(owners.Name(owners.Of(1)), "python");
  EXPECT_EQ(owners.Name(owners.Of(2)), "pycuda");
  EXPECT_EQ(owners.Of(3), kOwnerUnknown);
}

TEST(Owners, TakesTheInnermostModuleThatIsNotOnTheWay) {
  Stacks stacks;
  for (const char* const path :
       {"/x/libcudart.so.12", "/x/libnccl.so.2", "/x/libtorch_cuda.so"}) {
    stacks.modules.emplace_back().path = path;
  }
  stacks.frames.resize(5);
  for (int i = 0; i < 3; ++i) stacks.frames[static_cast<size_t>(i)].module = i;
  stacks.frames[3].kind = Frame::Kind::kPython;  // frame 4: no module (JIT)
  stacks.stacks = {{}, {{0, 4, 1, 2}}, {{3, 0, 2}}, {{0, 3, 4}}};
  Owners owners(stacks);

  EXPECT_EQ(owners.Name(owners.Of(1)), "nccl");
  EXPECT_EQ(owners.Of(2), kOwnerTorch);
  EXPECT_EQ(owners.Of(3), kOwnerUnknown);
  EXPECT_EQ(owners.Of(0), kOwnerUnknown);
  EXPECT_EQ(owners.Of(99), kOwnerUnknown);
}

}  // namespace
}  // namespace dstrace::model
