// SPDX-License-Identifier: Apache-2.0
#include "preload/hooks/torch_module.h"

#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <unistd.h>

#include <atomic>
#include <string_view>

#include "preload/capture/recorder.h"
#include "preload/hooks/libc_functions.h"
#include "preload/hooks/torch_events.h"
#include "preload/runtime/fork_gate.h"
#include "preload/runtime/text.h"

namespace dstrace::hooks {
namespace {

// The code of torch's allocator: [low, high). Written once, low last.
std::atomic<uintptr_t> g_low{UINTPTR_MAX};
std::atomic<uintptr_t> g_high{0};

std::atomic<bool> g_described{false};

struct Library {
  uintptr_t inside;  // an address in it
  uintptr_t low;
  uintptr_t high;
};

int FindLibrary(dl_phdr_info* object, size_t, void* result) noexcept {
  auto& library = *static_cast<Library*>(result);
  for (int i = 0; i < object->dlpi_phnum; ++i) {
    const ElfW(Phdr)& header = object->dlpi_phdr[i];
    const uintptr_t low = object->dlpi_addr + header.p_vaddr;
    if (header.p_type != PT_LOAD || (header.p_flags & PF_X) == 0 ||
        library.inside < low || library.inside >= low + header.p_memsz) {
      continue;
    }
    library.low = low;
    library.high = low + header.p_memsz;
    return 1;
  }
  return 0;
}

// The quoted text after "__version__ =" in `text`, or nothing.
std::string_view VersionIn(std::string_view text) noexcept {
  constexpr std::string_view kName = "\n__version__ = '";
  const size_t name = text.find(kName);
  if (name == std::string_view::npos) return {};
  text.remove_prefix(name + kName.size());
  const size_t end = text.find('\'');
  return end == std::string_view::npos ? std::string_view()
                                       : text.substr(0, end);
}

// "/x/torch/lib/libc10_cuda.so" -> "/x/torch/version.py".
bool VersionPath(std::string_view library, runtime::Text<4096>& path) noexcept {
  for (int parents = 0; parents < 2; ++parents) {
    const size_t slash = library.rfind('/');
    if (slash == std::string_view::npos) return false;
    library = library.substr(0, slash);
  }
  path << library << "/version.py";
  return true;
}

}  // namespace

void DescribeTorch(const void* caller) noexcept {
  // relaxed: only who is first matters. Plain load first: a process with a
  // profiled CPU allocator comes here each time.
  if (g_described.load(std::memory_order_relaxed) ||
      g_described.exchange(true, std::memory_order_relaxed)) {
    return;
  }
  Dl_info info;
  link_map* map = nullptr;
  const auto dladdr1 = Libc().dladdr1;
  if (dladdr1 == nullptr ||
      dladdr1(caller, &info, reinterpret_cast<void**>(&map), RTLD_DL_LINKMAP) ==
          0 ||
      map == nullptr || map->l_name == nullptr) {
    return;
  }
  runtime::Text<4096> path;
  if (!VersionPath(map->l_name, path)) return;
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return;
  char text[4096];
  const ssize_t size = read(file, text, sizeof text);
  close(file);
  if (size <= 0) return;
  const std::string_view version = VersionIn({text, static_cast<size_t>(size)});
  if (!version.empty()) capture::RecordProperty("torch.version", version);
}

bool IsTorchAllocator(const void* caller) noexcept {
  const auto address = reinterpret_cast<uintptr_t>(caller);
  // acquire: pairs with the release below, so that high is seen with low.
  return address >= g_low.load(std::memory_order_acquire) &&
         address < g_high.load(std::memory_order_relaxed);
}

void LearnTorchAllocator(const void* caller) noexcept {
  Library library{reinterpret_cast<uintptr_t>(caller), 0, 0};
  const runtime::ForkGate::Visit gate(runtime::ForkGate::Patience::kSome);
  if (!gate.entered() || dl_iterate_phdr(FindLibrary, &library) == 0) return;
  g_high.store(library.high, std::memory_order_relaxed);
  // release: pairs with the acquire in IsTorchAllocator().
  g_low.store(library.low, std::memory_order_release);
}

}  // namespace dstrace::hooks
