// SPDX-License-Identifier: Apache-2.0
#include "analyzer/symbolize/debug_files.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <link.h>
#include <sys/resource.h>

#include <cstring>

namespace dstrace::symbolize {
namespace {

__attribute__((noinline)) void* ReturnAddress() {
  return __builtin_return_address(0);
}

// Looks through the notes of one segment for the build-id.
std::string BuildIdIn(const char* at, size_t size) {
  for (const char* end = at + size; at + sizeof(ElfW(Nhdr)) <= end;) {
    ElfW(Nhdr) note;
    std::memcpy(&note, at, sizeof note);
    const char* const name = at + sizeof note;
    const char* const value = name + ((note.n_namesz + 3) & ~3u);
    if (note.n_type == NT_GNU_BUILD_ID) return {value, note.n_descsz};
    at = value + ((note.n_descsz + 3) & ~3u);
  }
  return "";
}

// This program as a trace would describe it.
model::Module Self() {
  model::Module module;
  Dl_info info = {};
  dladdr(reinterpret_cast<void*>(&ReturnAddress), &info);
  module.path = "/proc/self/exe";
  module.base = reinterpret_cast<uint64_t>(info.dli_fbase);
  dl_iterate_phdr(
      [](dl_phdr_info* self, size_t, void* out) {
        auto* const id = static_cast<std::string*>(out);
        for (int i = 0; i < self->dlpi_phnum && id->empty(); ++i) {
          const ElfW(Phdr)& header = self->dlpi_phdr[i];
          if (header.p_type != PT_NOTE) continue;
          *id = BuildIdIn(
              reinterpret_cast<const char*>(self->dlpi_addr + header.p_vaddr),
              header.p_memsz);
        }
        return 1;  // the first object is the program
      },
      &module.build_id);
  return module;
}

model::FrameText Described(const model::Module& module, const void* pc) {
  model::Stacks stacks;
  stacks.modules = {module};
  model::Frame frame;
  frame.pc = reinterpret_cast<uint64_t>(pc);
  frame.module = 0;
  stacks.frames = {frame};
  return DescribeWithDebugFiles(stacks).at(0);
}

bool Available() {
#ifdef DSTRACE_HAVE_LIBDW
  return dlopen("libdw.so.1", RTLD_NOW | RTLD_LOCAL) != nullptr;
#else
  return false;
#endif
}

TEST(DebugFiles, GiveFileAndLineOfTheCall) {
  if (!Available()) GTEST_SKIP() << "libdw is not here";
  void* volatile pc = nullptr;
  const uint32_t line = __LINE__ + 1;
  pc = ReturnAddress();
  const model::FrameText text = Described(Self(), pc);
  EXPECT_TRUE(text.file.ends_with("debug_files_test.cc")) << text.file;
  EXPECT_EQ(text.line, line);
  EXPECT_NE(text.function.find("TestBody"), std::string::npos);
}

// As after many dlopen() and dlclose(): the trace has each module many times.
TEST(DebugFiles, AreOpenedOnceHoweverOftenTheModuleIsThere) {
  if (!Available()) GTEST_SKIP() << "libdw is not here";
  void* volatile pc = nullptr;
  pc = ReturnAddress();
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit few = before;
  few.rlim_cur = 64;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);

  model::Stacks stacks;
  stacks.modules.assign(200, Self());
  for (int module = 0; module < 200; ++module) {
    model::Frame frame;
    frame.pc = reinterpret_cast<uint64_t>(pc);
    frame.module = module;
    stacks.frames.push_back(frame);
  }
  const auto described = DescribeWithDebugFiles(stacks);

  EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  for (const model::FrameText& text : described) {
    EXPECT_TRUE(text.file.ends_with("debug_files_test.cc")) << text.file;
  }
}

TEST(DebugFiles, AreNotUsedForAnotherBuild) {
  void* volatile pc = nullptr;
  pc = ReturnAddress();
  model::Module module = Self();
  ASSERT_FALSE(module.build_id.empty());
  module.build_id[0] = static_cast<char>(~module.build_id[0]);
  EXPECT_EQ(Described(module, pc).file, "");
  module.build_id.clear();
  EXPECT_EQ(Described(module, pc).file, "");
}

TEST(DebugFiles, AreNotMissedWhereTheModuleIsGone) {
  model::Module module = Self();
  module.path = "/nonexistent/libgone.so";
  module.build_id = "\x01\x02\x03\x04";
  const model::FrameText text =
      Described(module, reinterpret_cast<void*>(module.base + 0x40));
  EXPECT_EQ(text.Label(), "libgone.so+0x40");
}

}  // namespace
}  // namespace dstrace::symbolize
