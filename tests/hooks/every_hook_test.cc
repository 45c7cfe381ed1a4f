// SPDX-License-Identifier: Apache-2.0
//
// Every row of hook_table.inc, on every way that leads to it.

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <ostream>
#include <string>
#include <vector>

#include "tests/hooks/exercises.h"
#include "tests/hooks/exercises_context.h"
#include "tests/hooks/exercises_graph.h"
#include "tests/hooks/exercises_memory.h"
#include "tests/hooks/exercises_nccl.h"
#include "tests/hooks/exercises_virtual.h"

namespace dstrace::hooks::testing {
namespace {

struct Row {
  Hook hook;
  void* linked;  // what this program is linked with
  void (*exercise)(const Target& target, void* function);
};

void PrintTo(const Row& row, std::ostream* out) {
  *out << Info(row.hook).symbol;
}

// NOLINTBEGIN(bugprone-macro-parentheses)
#define DSTRACE_TEST_ROW(symbol, body, params)                      \
  {Hook::symbol, reinterpret_cast<void*>(&testing::symbol),         \
   [](const Target& target, void* function) {                       \
     using Function = int params;                                   \
     Exercise##body(target, reinterpret_cast<Function*>(function)); \
   }},
const Row kRows[] = {
#define DSTRACE_DRIVER_HOOK(symbol, base, since, stream, body, params, args) \
  DSTRACE_TEST_ROW(symbol, body, params)
#define DSTRACE_RUNTIME_HOOK(symbol, body, params, args) \
  DSTRACE_TEST_ROW(symbol, body, params)
#define DSTRACE_NCCL_HOOK(symbol, body, params, args) \
  DSTRACE_TEST_ROW(symbol, body, params)
#include "preload/hooks/hook_table.inc"
};
// NOLINTEND(bugprone-macro-parentheses)

const char* LibraryOf(Layer layer) {
  switch (layer) {
    case Layer::kDriver:
      return "libcuda.so.1";
    case Layer::kRuntime:
      return "libcudart.so.13";
    case Layer::kNccl:
      return "libnccl.so.2";
    case Layer::kTorch:
      return "libc10.so";
    case Layer::kCupti:
      return "libcupti.so.13";
  }
  return "";
}

std::vector<Row> RowsOf(Layer layer) {
  std::vector<Row> rows;
  for (const Row& row : kRows) {
    if (Info(row.hook).layer == layer) rows.push_back(row);
  }
  return rows;
}

std::string NameOf(const ::testing::TestParamInfo<Row>& row) {
  return Info(row.param.hook).symbol;
}

class EveryHook : public ::testing::TestWithParam<Row> {
 protected:
  void SetUp() override {
    ASSERT_EQ(cuInit(0), 0);
    CUcontext context = nullptr;
    ASSERT_EQ(cuDevicePrimaryCtxRetain(&context, 0), 0);
    ASSERT_EQ(cuCtxSetCurrent(context), 0);
    FakeRecorderClear();
  }

  const HookInfo& info() const { return Info(GetParam().hook); }

  void Exercise(void* function) {
    ASSERT_NE(function, nullptr);
    GetParam().exercise({info().symbol, info().layer}, function);
  }
};

TEST_P(EveryHook, IsSeenWhenCalledThroughTheLinker) {
  Exercise(GetParam().linked);
}

TEST_P(EveryHook, IsSeenWhenFoundByDlsym) {
  void* library = dlopen(LibraryOf(info().layer), RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(library, nullptr) << dlerror();
  void* found = dlsym(library, info().symbol);
  EXPECT_EQ(found, GetParam().linked);
  EXPECT_EQ(dlsym(RTLD_DEFAULT, info().symbol), GetParam().linked);
  Exercise(found);
  dlclose(library);
}

INSTANTIATE_TEST_SUITE_P(Table, EveryHook, ::testing::ValuesIn(kRows), NameOf);

class EveryRuntimeHook : public EveryHook {};

TEST_P(EveryRuntimeHook, IsSeenWhenFoundByItsVersion) {
  void* library = dlopen(LibraryOf(info().layer), RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(library, nullptr);
  EXPECT_EQ(dlvsym(library, info().symbol, "libcudart.so.13"),
            GetParam().linked);
  EXPECT_EQ(dlvsym(library, info().symbol, "libcudart.so.9"), nullptr);
  EXPECT_NE(dlerror(), nullptr);
  dlclose(library);
}

INSTANTIATE_TEST_SUITE_P(Table, EveryRuntimeHook,
                         ::testing::ValuesIn(RowsOf(Layer::kRuntime)), NameOf);

class EveryDriverHook : public EveryHook {};

TEST_P(EveryDriverHook, IsSeenWhenTheDriverIsAskedForIt) {
  const uint64_t flags = info().stream == StreamMode::kPerThread
                             ? kProcAddressPerThreadStream
                             : kProcAddressLegacyStream;
  int status = 0;
  void* found = nullptr;
  ASSERT_EQ(
      cuGetProcAddress_v2(info().base, &found, info().since, flags, &status),
      0);
  EXPECT_EQ(found, GetParam().linked) << info().symbol;
  Exercise(found);
  void* old_abi = nullptr;
  ASSERT_EQ(cuGetProcAddress(info().base, &old_abi, info().since, flags), 0);
  EXPECT_EQ(old_abi, GetParam().linked);
  EXPECT_TRUE(FakeRecorderGet().losses.empty());
}

TEST_P(EveryDriverHook, IsSeenWhenTheRuntimeIsAskedForIt) {
  const uint64_t flags = info().stream == StreamMode::kPerThread
                             ? kProcAddressPerThreadStream
                             : kProcAddressLegacyStream;
  int status = 0;
  void* found = nullptr;
  ASSERT_EQ(cudaGetDriverEntryPointByVersion(
                info().base, &found, static_cast<unsigned int>(info().since),
                flags, &status),
            0);
  EXPECT_EQ(found, GetParam().linked) << info().symbol;
}

INSTANTIATE_TEST_SUITE_P(Table, EveryDriverHook,
                         ::testing::ValuesIn(RowsOf(Layer::kDriver)), NameOf);

}  // namespace
}  // namespace dstrace::hooks::testing
