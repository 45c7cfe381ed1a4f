// SPDX-License-Identifier: Apache-2.0
//
// dstrace as an NVTX tool: what torch, DeepSpeed and others say with
// nvtxRangePush() and its kin lands in the trace, without a change to them.
//
// NVTX is a header that each library carries. At its first call it loads the
// library that NVTX_INJECTION64_PATH names and calls InitializeInjectionNvtx2
// there, which puts its functions into the caller's table. The variable is set
// to this library when it is loaded, unless the user gave it to another tool.
// A process that inherits the variable but not the preload loads this library
// here, is refused, and drops it again.

#include <dlfcn.h>

#include <cstdlib>
#include <string_view>

#include "preload/capture/recorder.h"
#include "preload/hooks/export.h"
#include "preload/hooks/hooks.h"
#include "preload/hooks/libc_functions.h"
#include "preload/hooks/nvtx_abi.h"
#include "preload/hooks/nvtx_names.h"
#include "preload/hooks/ranges.h"
#include "preload/runtime/config.h"
#include "preload/runtime/guard.h"

extern "C" DSTRACE_EXPORT int InitializeInjectionNvtx2(
    dstrace::hooks::nvtx::GetExportTable get_export_table) noexcept;

namespace dstrace::hooks {
namespace nvtx {
namespace {

constexpr char kVariable[] = "NVTX_INJECTION64_PATH";

// Domains and registered strings are the texts that nvtx_names.h gave out.
std::string_view TextOf(const void* text) noexcept {
  return text == nullptr ? std::string_view() : static_cast<const char*>(text);
}

// Empty where there is no name or one of wide characters.
std::string_view NameIn(const EventAttributes* event) noexcept {
  if (event == nullptr || event->size < sizeof(EventAttributes)) return {};
  const bool readable = event->message_type == kMessageAscii ||
                        event->message_type == kMessageRegistered;
  return readable ? TextOf(event->message) : std::string_view();
}

void Mark(std::string_view name, const void* domain) noexcept {
  runtime::Guard guard;
  if (guard.entered()) MarkPoint(name, TextOf(domain));
}

int Push(std::string_view name, const void* domain) noexcept {
  runtime::Guard guard;
  if (guard.entered()) PushRange(name, TextOf(domain));
  return kNoTracking;  // as without a tool
}

int Pop(const void* domain) noexcept {
  runtime::Guard guard;
  if (guard.entered()) PopRange(TextOf(domain));
  return kNoTracking;
}

// A range that may end in another thread: its end carries its name.
RangeId Start(std::string_view name, const void* domain) noexcept {
  runtime::Guard guard;
  if (!guard.entered() || !capture::IsRecording() || name.empty()) {
    return AddRange({});
  }
  WriteKeptRanges();
  capture::RecordMark(capture::MarkKind::kPush, name, TextOf(domain));
  return AddRange({name, TextOf(domain)});
}

void End(RangeId id) noexcept {
  runtime::Guard guard;
  if (!guard.entered()) return;
  TakeRange(id, [](const StartedRange& range) {
    if (range.name.empty() || !capture::IsRecording()) return;
    capture::RecordMark(capture::MarkKind::kPop, range.name, range.domain);
  });
}

void MarkEx(const EventAttributes* event) noexcept {
  Mark(NameIn(event), nullptr);
}
void MarkA(const char* name) noexcept { Mark(TextOf(name), nullptr); }
RangeId RangeStartEx(const EventAttributes* event) noexcept {
  return Start(NameIn(event), nullptr);
}
RangeId RangeStartA(const char* name) noexcept {
  return Start(TextOf(name), nullptr);
}
int RangePushEx(const EventAttributes* event) noexcept {
  return Push(NameIn(event), nullptr);
}
int RangePushA(const char* name) noexcept {
  return Push(TextOf(name), nullptr);
}
// Only counted, so that its pop is not taken for another's.
int RangePushW(const wchar_t*) noexcept { return Push({}, nullptr); }
int RangePop() noexcept { return Pop(nullptr); }

void DomainMarkEx(const void* domain, const EventAttributes* event) noexcept {
  Mark(NameIn(event), domain);
}
RangeId DomainRangeStartEx(const void* domain,
                           const EventAttributes* event) noexcept {
  return Start(NameIn(event), domain);
}
void DomainRangeEnd(const void*, RangeId id) noexcept { End(id); }
int DomainRangePushEx(const void* domain,
                      const EventAttributes* event) noexcept {
  return Push(NameIn(event), domain);
}
int DomainRangePop(const void* domain) noexcept { return Pop(domain); }
const void* DomainRegisterStringA(const void*, const char* text) noexcept {
  runtime::Guard guard;
  return AddString(text);
}
const void* DomainCreateA(const char* name) noexcept {
  runtime::Guard guard;
  return AddDomain(name);
}

struct Entry {
  unsigned id;
  Function function;
};

template <class F>
Entry Make(unsigned id, F* function) noexcept {
  return {id, reinterpret_cast<Function>(function)};
}

template <size_t N>
void Fill(const CallbacksTable& callbacks, int module,
          const Entry (&entries)[N]) noexcept {
  FunctionTable table = nullptr;
  unsigned size = 0;
  if (callbacks.get_module_function_table(module, &table, &size) == 0 ||
      table == nullptr) {
    return;
  }
  for (const Entry& entry : entries) {
    if (entry.id < size && table[entry.id] != nullptr) {
      *table[entry.id] = entry.function;
    }
  }
}

void Attach(const CallbacksTable& callbacks) noexcept {
  const Entry core[] = {
      Make(kMarkEx, &MarkEx),
      Make(kMarkA, &MarkA),
      Make(kRangeStartEx, &RangeStartEx),
      Make(kRangeStartA, &RangeStartA),
      Make(kRangeEnd, &End),
      Make(kRangePushEx, &RangePushEx),
      Make(kRangePushA, &RangePushA),
      Make(kRangePushW, &RangePushW),
      Make(kRangePop, &RangePop),
  };
  const Entry core2[] = {
      Make(kDomainMarkEx, &DomainMarkEx),
      Make(kDomainRangeStartEx, &DomainRangeStartEx),
      Make(kDomainRangeEnd, &DomainRangeEnd),
      Make(kDomainRangePushEx, &DomainRangePushEx),
      Make(kDomainRangePop, &DomainRangePop),
      Make(kDomainRegisterStringA, &DomainRegisterStringA),
      Make(kDomainCreateA, &DomainCreateA),
  };
  Fill(callbacks, kModuleCore, core);
  Fill(callbacks, kModuleCore2, core2);
}

// False where this library was only opened, by NVTX or by hand: its hooks see
// nothing then.
bool IsPreloaded() noexcept {
  const LibcFunctions& libc = Libc();
  if (libc.dlopen == nullptr || libc.dlsym == nullptr) return false;
  void* program = libc.dlopen(nullptr, RTLD_LAZY);
  if (program == nullptr) return false;
  void* found = libc.dlsym(program, "InitializeInjectionNvtx2");
  libc.dlclose(program);
  return found == reinterpret_cast<void*>(&InitializeInjectionNvtx2);
}

}  // namespace
}  // namespace nvtx

void OfferNvtx() noexcept {
  runtime::Guard guard;
  const runtime::Config& config = runtime::GetConfig();
  if (config.disabled || !config.nvtx) return;
  if (getenv(nvtx::kVariable) != nullptr || !nvtx::IsPreloaded()) return;
  Dl_info self;
  if (dladdr(reinterpret_cast<void*>(&InitializeInjectionNvtx2), &self) == 0 ||
      self.dli_fname == nullptr) {
    return;
  }
  setenv(nvtx::kVariable, self.dli_fname, 0);
}

}  // namespace dstrace::hooks

int InitializeInjectionNvtx2(
    dstrace::hooks::nvtx::GetExportTable get_export_table) noexcept {
  using namespace dstrace;  // NOLINT(google-build-using-namespace)
  runtime::Guard guard;
  const runtime::Config& config = runtime::GetConfig();
  if (get_export_table == nullptr || config.disabled || !config.nvtx ||
      !hooks::nvtx::IsPreloaded()) {
    return 0;
  }
  const auto* callbacks = static_cast<const hooks::nvtx::CallbacksTable*>(
      get_export_table(hooks::nvtx::kTableCallbacks));
  if (callbacks == nullptr ||
      callbacks->struct_size < sizeof(hooks::nvtx::CallbacksTable)) {
    return 0;
  }
  hooks::nvtx::Attach(*callbacks);
  return 1;
}
