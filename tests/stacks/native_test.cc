// SPDX-License-Identifier: Apache-2.0
#include "preload/stacks/native.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "preload/stacks/elf_module.h"
#include "preload/stacks/python.h"
#include "preload/stacks/symbol.h"
#include "preload/stacks/symbol_index.h"

// The test's own code is linked with CaptureNative: its leading frames are left
// out, so stacks start where another library calls back into the test.

namespace dstrace::stacks {
namespace {

struct Capture {
  std::vector<void*> pcs;
  int count = 0;
};

int TakeStack(void* argument) {
  auto* capture = static_cast<Capture*>(argument);
  capture->pcs.resize(128);
  capture->count = CaptureNative(capture->pcs.data(), 128);
  return 41;
}

std::string NameAt(const void* pc) {
  SymbolInfo info;
  return DescribeNative(reinterpret_cast<uintptr_t>(pc) - 1, &info) ? info.name
                                                                    : "?";
}

// Calls reloaded_call of the library at `path`; unloads it afterwards.
Capture CallThrough(const char* path, void** address) {
  Capture capture;
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  EXPECT_NE(library, nullptr) << dlerror();
  using Call = int (*)(int (*)(void*), void*);
  const auto call = reinterpret_cast<Call>(dlsym(library, "reloaded_call"));
  *address = reinterpret_cast<void*>(call);
  EXPECT_EQ(call(TakeStack, &capture), 42);
  EXPECT_GT(capture.count, 0);
  EXPECT_EQ(NameAt(capture.pcs[0]), "reloaded_call");
  dlclose(library);
  return capture;
}

TEST(CaptureNative, StartsAtTheFirstFrameOutsideOfOurModule) {
  void* address = nullptr;
  const Capture capture = CallThrough(DSTRACE_RELOADED_SMALL, &address);

  ASSERT_GT(capture.count, 2);
  bool reaches_start = false;
  for (int i = 0; i < capture.count; ++i) {
    reaches_start |=
        NameAt(capture.pcs[static_cast<size_t>(i)]).find("libc_start") !=
        std::string::npos;
  }
  EXPECT_TRUE(reaches_start);
}

// Two libraries with unlike stack frames take turns at one address. An unwinder
// that remembers the first one's frames would read the caller's address from
// the wrong place.
TEST(CaptureNative, FollowsCodeThatReplacesUnloadedCode) {
  constexpr int kRounds = 20;
  int reused = 0;
  int expected_depth = -1;
  void* last = nullptr;
  for (int round = 0; round < kRounds; ++round) {
    void* address = nullptr;
    const Capture capture = CallThrough(
        round % 2 == 0 ? DSTRACE_RELOADED_SMALL : DSTRACE_RELOADED_LARGE,
        &address);
    ModulesChanged();
    if (expected_depth < 0) expected_depth = capture.count;
    EXPECT_EQ(capture.count, expected_depth) << "round " << round;
    reused += address == last ? 1 : 0;
    last = address;
  }
  EXPECT_GT(reused, 0)
      << "the loader never reused an address: nothing was tested";
}

TEST(CaptureNative, CutsAtTheLimit) {
  void* pcs[4] = {nullptr, nullptr, nullptr, nullptr};

  EXPECT_EQ(CaptureNative(pcs, 0), 0);
  EXPECT_LE(CaptureNative(pcs, 2), 2);
  EXPECT_EQ(pcs[2], nullptr);
  EXPECT_EQ(pcs[3], nullptr);
}

TEST(CaptureNative, KeepsErrno) {
  errno = E2BIG;
  WarmUp();
  void* pcs[16];
  CaptureNative(pcs, 16);
  ModulesChanged();
  CaptureNative(pcs, 16);
  SymbolInfo info;
  DescribeNative(reinterpret_cast<uintptr_t>(&strlen), &info);

  EXPECT_EQ(errno, E2BIG);
}

TEST(CaptureNative, WorksInManyThreadsAtOnceWhileModulesChange) {
  constexpr int kThreads = 8;
  std::vector<std::thread> threads;
  std::vector<int> wrong(kThreads, 0);
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&wrong, t] {
      void* pcs[64];
      const int expected = CaptureNative(pcs, 64);
      for (int i = 0; i < 2000; ++i) {
        if (CaptureNative(pcs, 64) != expected) ++wrong[static_cast<size_t>(t)];
        if (i % 100 == 0) ModulesChanged();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(kThreads, 0));
}

TEST(CapturePython, FindsNothingWhereThereIsNoInterpreter) {
  PyFrame frames[4];
  bool truncated = true;

  EXPECT_EQ(CapturePython(frames, 4, &truncated), 0);
  EXPECT_FALSE(truncated);
  EXPECT_EQ(PythonStatus(), PyStatus::kNoPython);
  EXPECT_EQ(PythonVersionHex(), 0u);
  PyCodeInfo info;
  EXPECT_FALSE(DescribeFrame({frames, 0, true, 0}, &info));
}

TEST(DescribeNative, NamesALibrarysFunctionAndItsModule) {
  // A call through the executable's own table would describe the executable.
  const auto address = reinterpret_cast<uintptr_t>(dlsym(RTLD_DEFAULT, "a64l"));
  SymbolInfo info;

  ASSERT_TRUE(DescribeNative(address + 3, &info));
  EXPECT_STREQ(info.name, "a64l");
  EXPECT_EQ(info.offset, 3u);
  EXPECT_NE(std::string(info.module.path).find("libc.so"), std::string::npos);
  EXPECT_LT(info.module.base, address);
  EXPECT_GT(info.module.end, address);
  EXPECT_EQ(info.module.build_id_size, 20u);
  Dl_info expected;
  ASSERT_NE(dladdr(reinterpret_cast<void*>(address), &expected), 0);
  EXPECT_EQ(info.module.base, reinterpret_cast<uintptr_t>(expected.dli_fbase));
}

TEST(DescribeNative, GivesStaticCodeOfTheExecutableItsModuleOnly) {
  SymbolInfo info;

  ASSERT_TRUE(DescribeNative(reinterpret_cast<uintptr_t>(&TakeStack), &info));
  EXPECT_EQ(info.module.path[0], '/');
  EXPECT_STREQ(info.name, "");
}

TEST(DescribeNative, RefusesAddressesOutsideOfEveryModule) {
  SymbolInfo info;
  int on_stack = 0;

  EXPECT_FALSE(DescribeNative(16, &info));
  EXPECT_FALSE(DescribeNative(reinterpret_cast<uintptr_t>(&on_stack), &info));
}

// The index and the plain search must agree for every function and gap of the
// largest libraries at hand.
TEST(SymbolIndex, AgreesWithASearchThroughTheWholeTable) {
  for (const char* name : {"a64l", "_ZNSt6thread4joinEv"}) {
    const auto inside = reinterpret_cast<uintptr_t>(dlsym(RTLD_DEFAULT, name));
    ElfModule module;
    ASSERT_TRUE(FindModuleAt(inside, &module)) << name;
    const uint32_t count = CountSymbols(module);
    ASSERT_GT(count, 1024u) << "too small to be indexed";
    int compared = 0;
    for (uint32_t i = 1; i < count; i += 7) {
      const Elf64_Sym& symbol = module.symbols[i];
      if (ELF64_ST_TYPE(symbol.st_info) != STT_FUNC ||
          symbol.st_shndx == SHN_UNDEF)
        continue;
      for (const uintptr_t offset :
           {uintptr_t{0}, symbol.st_size / 2, symbol.st_size - 1}) {
        const uintptr_t pc = module.base + symbol.st_value + offset;
        const Elf64_Sym* found = FindIndexedSymbolAt(module, pc);
        ASSERT_NE(found, nullptr)
            << SymbolName(module, symbol) << "+" << offset;
        EXPECT_GE(found->st_value, symbol.st_value);
        EXPECT_LT(pc - module.base - found->st_value, found->st_size);
        ++compared;
      }
    }
    EXPECT_GT(compared, 300);
    EXPECT_EQ(FindIndexedSymbolAt(module, module.base), nullptr);
  }
}

}  // namespace
}  // namespace dstrace::stacks
