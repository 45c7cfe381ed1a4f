// SPDX-License-Identifier: Apache-2.0
//
// dstrace as NVTX's injection library, and dstrace_mark() and its kin. NVTX's
// half, two tables of function pointers, is made here; the real header is in
// tests/e2e/nvtx_program.cc.

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cwchar>
#include <string>
#include <thread>
#include <vector>

#include "preload/hooks/cuda_abi.h"
#include "preload/hooks/nvtx_abi.h"
#include "tests/hooks/fake_recorder.h"

extern "C" {
int InitializeInjectionNvtx2(
    dstrace::hooks::nvtx::GetExportTable get_export_table) noexcept;
void dstrace_mark(const char* name) noexcept;
void dstrace_push(const char* name) noexcept;
void dstrace_pop() noexcept;
int cudaMalloc(void** dev_ptr, size_t size) noexcept;
int cudaFree(void* dev_ptr) noexcept;
}

namespace dstrace::hooks::nvtx {
namespace {

using capture::MarkKind;

constexpr unsigned kSize = 16;

// NVTX's functions before a tool is there: each counts as untouched.
void Untouched() {}
Function g_core[kSize];
Function g_core2[kSize];
Function* g_core_table[kSize];
Function* g_core2_table[kSize];

int GetModuleFunctionTable(int module, FunctionTable* table, unsigned* size) {
  if (module != kModuleCore && module != kModuleCore2) return 0;
  *table = module == kModuleCore ? g_core_table : g_core2_table;
  *size = kSize;
  return 1;
}

const void* GetTable(uint32_t table) {
  static constexpr CallbacksTable kCallbacks = {sizeof(CallbacksTable),
                                                &GetModuleFunctionTable};
  return table == kTableCallbacks ? &kCallbacks : nullptr;
}

template <class F>
F* CoreAs(unsigned id) {
  return reinterpret_cast<F*>(g_core[id]);
}
template <class F>
F* Core2As(unsigned id) {
  return reinterpret_cast<F*>(g_core2[id]);
}

int Push(const char* name) {
  return CoreAs<int(const char*)>(kRangePushA)(name);
}
int Pop() { return CoreAs<int()>(kRangePop)(); }

EventAttributes Event(int32_t type, const void* message) {
  EventAttributes event{};
  event.version = 3;
  event.size = sizeof event;
  event.message_type = type;
  event.message = message;
  return event;
}

// "push load", "pop", "point warm @torch", in order.
std::vector<std::string> Marks() {
  static constexpr const char* kNames[] = {"point", "push", "pop"};
  std::vector<std::string> lines;
  for (const fakes::Mark& mark : FakeRecorderGet().marks) {
    std::string line = kNames[static_cast<int>(mark.kind)];
    if (!mark.name.empty()) line += " " + mark.name;
    if (!mark.domain.empty()) line += " @" + mark.domain;
    lines.push_back(line);
  }
  return lines;
}

using Lines = std::vector<std::string>;

class NvtxTest : public testing::Test {
 protected:
  void SetUp() override {
    for (unsigned i = 0; i < kSize; ++i) {
      g_core[i] = g_core2[i] = &Untouched;
      g_core_table[i] = &g_core[i];
      g_core2_table[i] = &g_core2[i];
    }
    ASSERT_EQ(InitializeInjectionNvtx2(&GetTable), 1);
    FakeRecorderClear();
    FakeRecorderGet().is_recording = true;
  }
};

TEST_F(NvtxTest, RangesAndMarksOfTheDefaultDomainAreWritten) {
  EXPECT_EQ(Push("load"), kNoTracking);
  CoreAs<void(const char*)>(kMarkA)("warm");
  EXPECT_EQ(Pop(), kNoTracking);

  EXPECT_EQ(Marks(), (Lines{"push load", "point warm", "pop"}));
}

TEST_F(NvtxTest, AnEventsMessageIsItsName) {
  const EventAttributes event = Event(kMessageAscii, "step");
  CoreAs<int(const EventAttributes*)>(kRangePushEx)(&event);
  CoreAs<void(const EventAttributes*)>(kMarkEx)(&event);
  Pop();

  EXPECT_EQ(Marks(), (Lines{"push step", "point step", "pop"}));
}

TEST_F(NvtxTest, DomainsAndRegisteredStringsAreResolved) {
  const void* domain =
      Core2As<const void*(const char*)>(kDomainCreateA)("DeepSpeed");
  const void* name = Core2As<const void*(const void*, const char*)>(
      kDomainRegisterStringA)(domain, "fetch_sub_module");
  const EventAttributes event = Event(kMessageRegistered, name);
  Core2As<int(const void*, const EventAttributes*)>(kDomainRangePushEx)(domain,
                                                                        &event);
  Core2As<void(const void*, const EventAttributes*)>(kDomainMarkEx)(domain,
                                                                    &event);
  Core2As<int(const void*)>(kDomainRangePop)(domain);

  EXPECT_EQ(Marks(),
            (Lines{"push fetch_sub_module @DeepSpeed",
                   "point fetch_sub_module @DeepSpeed", "pop @DeepSpeed"}));
}

TEST_F(NvtxTest, ADomainThatIsAskedForAgainIsTheSame) {
  auto* create = Core2As<const void*(const char*)>(kDomainCreateA);
  EXPECT_EQ(create("apex"), create("apex"));
  EXPECT_NE(create("apex"), create("torch"));
  for (int i = 0; i < 200; ++i) {
    EXPECT_NE(create(("many" + std::to_string(i)).c_str()), nullptr);
  }
}

TEST_F(NvtxTest, ARangeThatEndsInAnotherThreadEndsByName) {
  const RangeId id = CoreAs<RangeId(const char*)>(kRangeStartA)("copy");
  const RangeId other = CoreAs<RangeId(const char*)>(kRangeStartA)("send");
  EXPECT_NE(id, other);
  std::thread([id] { CoreAs<void(RangeId)>(kRangeEnd)(id); }).join();
  CoreAs<void(RangeId)>(kRangeEnd)(id);  // twice: once is enough
  CoreAs<void(RangeId)>(kRangeEnd)(other);

  EXPECT_EQ(Marks(), (Lines{"push copy", "push send", "pop copy", "pop send"}));
}

TEST_F(NvtxTest, MoreRangesThanAreRememberedLoseOnlyTheirEnd) {
  std::vector<RangeId> ids;
  for (int i = 0; i < 1000; ++i) {
    ids.push_back(CoreAs<RangeId(const char*)>(kRangeStartA)("open"));
  }
  for (const RangeId id : ids) CoreAs<void(RangeId)>(kRangeEnd)(id);
  size_t ends = 0;
  for (const std::string& line : Marks()) ends += line == "pop open" ? 1 : 0;
  EXPECT_EQ(ends, 128);

  FakeRecorderClear();
  const RangeId id = CoreAs<RangeId(const char*)>(kRangeStartA)("again");
  CoreAs<void(RangeId)>(kRangeEnd)(id);
  EXPECT_EQ(Marks(), (Lines{"push again", "pop again"}));
}

TEST_F(NvtxTest, AWideRangeIsNotWrittenAndNeitherIsItsPop) {
  Push("outer");
  CoreAs<int(const wchar_t*)>(kRangePushW)(L"wide");
  Pop();
  Pop();

  EXPECT_EQ(Marks(), (Lines{"push outer", "pop"}));
}

TEST_F(NvtxTest, BadInputIsForgiven) {
  CoreAs<void(const char*)>(kMarkA)(nullptr);
  Push(nullptr);
  Pop();
  Pop();  // one too many
  CoreAs<int(const EventAttributes*)>(kRangePushEx)(nullptr);
  Pop();
  EventAttributes old = Event(kMessageAscii, "short");
  old.size = 8;
  CoreAs<void(const EventAttributes*)>(kMarkEx)(&old);
  const EventAttributes unnamed = Event(kMessageRegistered, nullptr);
  CoreAs<void(const EventAttributes*)>(kMarkEx)(&unnamed);
  CoreAs<void(RangeId)>(kRangeEnd)(0);
  CoreAs<void(RangeId)>(kRangeEnd)(~RangeId{0});

  EXPECT_EQ(Marks(), Lines{});
}

TEST_F(NvtxTest, NothingIsWrittenBeforeTheFirstCudaEvent) {
  FakeRecorderGet().is_recording = false;
  CoreAs<void(const char*)>(kMarkA)("early");
  Push("over");
  Pop();
  Push("outer");
  Push("inner");

  EXPECT_EQ(Marks(), Lines{});
  Pop();
  Pop();
  EXPECT_EQ(Marks(), Lines{});
}

TEST_F(NvtxTest, RangesOpenAtTheFirstCudaEventAreWrittenBeforeIt) {
  FakeRecorderGet().is_recording = false;
  Push("outer");
  Push("inner");
  Push("closed");
  Pop();
  void* memory = nullptr;
  ASSERT_EQ(cudaMalloc(&memory, 4096), 0);  // the event that opens the log
  EXPECT_EQ(Marks(), (Lines{"push outer", "push inner"}));
  FakeRecorderGet().is_recording = true;
  Pop();
  Pop();
  ASSERT_EQ(cudaFree(memory), 0);

  EXPECT_EQ(Marks(), (Lines{"push outer", "push inner", "pop", "pop"}));
}

TEST_F(NvtxTest, DeepRangesStayBalanced) {
  FakeRecorderGet().is_recording = false;
  for (int i = 0; i < 20; ++i) Push("early");
  FakeRecorderGet().is_recording = true;
  for (int i = 0; i < 30; ++i) Push("late");
  for (int i = 0; i < 50; ++i) Pop();

  int open = 0;
  int pushes = 0;
  for (const fakes::Mark& mark : FakeRecorderGet().marks) {
    open += mark.kind == MarkKind::kPush ? 1 : -1;
    pushes += mark.kind == MarkKind::kPush ? 1 : 0;
  }
  EXPECT_EQ(open, 0);
  EXPECT_EQ(pushes, 30 + 8);  // the eight outermost early ones are kept
}

TEST_F(NvtxTest, TheProgramsOwnFunctionsDoTheSame) {
  dstrace_push("load");
  dstrace_mark("half");
  dstrace_pop();
  dstrace_pop();
  dstrace_mark(nullptr);
  dstrace_push(nullptr);
  dstrace_pop();

  EXPECT_EQ(Marks(), (Lines{"push load", "point half", "pop"}));
}

TEST_F(NvtxTest, ALibraryThatWasOnlyOpenedIsNoTool) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer cannot be loaded a second time";
#endif
  EXPECT_EQ(InitializeInjectionNvtx2(nullptr), 0);
  // A second copy in a namespace of its own, as in a process without preload.
  Dl_info self;
  ASSERT_NE(dladdr(reinterpret_cast<void*>(&InitializeInjectionNvtx2), &self),
            0);
  void* copy = dlmopen(LM_ID_NEWLM, self.dli_fname, RTLD_LAZY);
  ASSERT_NE(copy, nullptr) << dlerror();
  auto* initialize = reinterpret_cast<decltype(&InitializeInjectionNvtx2)>(
      dlsym(copy, "InitializeInjectionNvtx2"));
  ASSERT_NE(initialize, nullptr);
  EXPECT_EQ(initialize(&GetTable), 0);
  dlclose(copy);
}

}  // namespace
}  // namespace dstrace::hooks::nvtx
