// SPDX-License-Identifier: Apache-2.0
#include "preload/hooks/deep_bind.h"

#include <elf.h>
#include <link.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "preload/capture/recorder.h"
#include "preload/hooks/hook_id.h"
#include "preload/hooks/libc_functions.h"
#include "preload/runtime/diagnostics.h"
#include "preload/runtime/text.h"

namespace dstrace::hooks {

std::atomic<bool> g_deep_bind_untold{false};

namespace {

// More than a few are not looked at.
constexpr int kMaxFiles = 16;
struct File {
  std::atomic<bool> ready{false};
  bool told = false;
  runtime::Text<512> name;
};
File g_files[kMaxFiles];
std::atomic<int> g_count{0};
std::atomic<bool> g_telling{false};

std::string_view BaseName(std::string_view path) noexcept {
  return runtime::Tail(path, path.rfind('/') + 1);
}

// What the loader keeps of one object.
struct Object {
  explicit Object(const link_map& map) noexcept : base(map.l_addr) {
    for (const ElfW(Dyn)* entry = map.l_ld; entry->d_tag != DT_NULL; ++entry) {
      const ElfW(Addr) value = entry->d_un.d_val;
      if (entry->d_tag == DT_SYMTAB) symbols = At<ElfW(Sym)>(value);
      if (entry->d_tag == DT_STRTAB) strings = At<char>(value);
      if (entry->d_tag == DT_JMPREL) calls = At<ElfW(Rela)>(value);
      if (entry->d_tag == DT_PLTRELSZ) call_bytes = value;
      if (entry->d_tag == DT_RELA) data = At<ElfW(Rela)>(value);
      if (entry->d_tag == DT_RELASZ) data_bytes = value;
    }
    for (const ElfW(Dyn)* entry = map.l_ld; entry->d_tag != DT_NULL; ++entry) {
      if (entry->d_tag != DT_NEEDED || strings == nullptr) continue;
      const std::string_view needed = strings + entry->d_un.d_val;
      has_cuda |= needed.starts_with("libcuda.so") ||
                  needed.starts_with("libcudart.so");
    }
  }

  // glibc relocates these entries in place; other loaders leave offsets.
  template <class T>
  const T* At(ElfW(Addr) value) const noexcept {
    return reinterpret_cast<const T*>(value < base ? base + value : value);
  }

  const ElfW(Addr) base;
  const ElfW(Sym) * symbols = nullptr;
  const char* strings = nullptr;
  const ElfW(Rela) * calls = nullptr;
  const ElfW(Rela) * data = nullptr;
  size_t call_bytes = 0;
  size_t data_bytes = 0;
  bool has_cuda = false;  // among what it is linked with
};

// The functions of ours that one object reaches past us.
class Bypasses {
 public:
  explicit Bypasses(const Object& object) noexcept : object_(object) {
    if (object.symbols == nullptr || object.strings == nullptr) return;
    Look(object.calls, object.call_bytes);
    Look(object.data, object.data_bytes);
  }

  [[nodiscard]] bool any() const noexcept { return count_ > 0; }
  [[nodiscard]] std::string_view names() const noexcept {
    return names_.view();
  }

 private:
  static constexpr int kMaxNamed = 4;

  void Look(const ElfW(Rela) * relocations, size_t bytes) noexcept {
    for (size_t i = 0; i < bytes / sizeof(ElfW(Rela)); ++i) {
      const auto type = ELF64_R_TYPE(relocations[i].r_info);
      if (type != R_X86_64_JUMP_SLOT && type != R_X86_64_GLOB_DAT) continue;
      const ElfW(Sym)& symbol =
          object_.symbols[ELF64_R_SYM(relocations[i].r_info)];
      if (symbol.st_shndx != SHN_UNDEF) continue;
      const char* name = object_.strings + symbol.st_name;
      const bool asks = IsDlsym(name) && MentionsDriver();
      const Hook hook = asks ? Hook::kCount : FindHook(name);
      const auto slot = reinterpret_cast<void* const*>(object_.base +
                                                       relocations[i].r_offset);
      const bool past =
          asks ? IsPastDlsym(name, *slot)
               : hook != Hook::kCount && IsPastUs(hook, name, *slot);
      if (past) Add(name);
    }
  }

  bool IsPastUs(Hook hook, const char* name, const void* bound) const noexcept {
    if (bound == WrapperOf(hook)) return false;
    // Another preload in front of us, or a place that is not bound yet: that
    // it will be bound past us is sure where CUDA is among its own.
    const link_map* owner = nullptr;
    Dl_info info;
    if (Libc().dladdr1 != nullptr &&
        Libc().dladdr1(bound, &info,
                       reinterpret_cast<void**>(const_cast<link_map**>(&owner)),
                       RTLD_DL_LINKMAP) != 0 &&
        owner != nullptr && owner->l_addr == object_.base) {
      return object_.has_cuda;
    }
    return bound != Libc().dlsym(RTLD_DEFAULT, name);
  }

  static bool IsDlsym(const char* name) noexcept {
    return std::strcmp(name, "dlsym") == 0 || std::strcmp(name, "dlvsym") == 0;
  }

  // Every library is linked with libc: what is not bound yet will be past us.
  static bool IsPastDlsym(const char* name, const void* bound) noexcept {
    return bound != Libc().dlsym(RTLD_DEFAULT, name);
  }

  // A CUDA runtime, alone or linked into the object, asks for the driver by
  // its name. Looked for in the first part of each segment: constants come
  // before code for the GPU, which may be large.
  bool MentionsDriver() noexcept {
    if (mentions_ != 0) return mentions_ > 0;
    mentions_ = -1;
    constexpr size_t kMostBytes = size_t{64} << 20;
    const auto* file = reinterpret_cast<const ElfW(Ehdr)*>(object_.base);
    if (std::memcmp(file->e_ident, ELFMAG, SELFMAG) != 0) return false;
    const auto* segment =
        reinterpret_cast<const ElfW(Phdr)*>(object_.base + file->e_phoff);
    for (int i = 0; i < file->e_phnum; ++i, ++segment) {
      if (segment->p_type != PT_LOAD || (segment->p_flags & PF_W) != 0 ||
          (segment->p_flags & PF_R) == 0) {
        continue;
      }
      const size_t bytes = std::min<size_t>(segment->p_filesz, kMostBytes);
      const auto* start =
          reinterpret_cast<const void*>(object_.base + segment->p_vaddr);
      if (memmem(start, bytes, "libcuda.so", 10) != nullptr) {
        mentions_ = 1;
        return true;
      }
    }
    return false;
  }

  void Add(const char* name) noexcept {
    if (++count_ <= kMaxNamed) names_ << (count_ == 1 ? "" : ", ") << name;
    if (count_ == kMaxNamed + 1) names_ << ", ...";
  }

  const Object& object_;
  int count_ = 0;
  int mentions_ = 0;  // 0: not looked yet
  runtime::Text<200> names_;
};

// The loaded object that dlopen(`file`) gave.
const link_map* FindLoaded(std::string_view file) noexcept {
  const bool is_path = file.find('/') != std::string_view::npos;
  for (const link_map* map = _r_debug.r_map; map != nullptr;
       map = map->l_next) {
    const std::string_view name = map->l_name;
    if (name == file || BaseName(name) == (is_path ? BaseName(file) : file)) {
      return map;
    }
  }
  return nullptr;
}

void TellObject(const link_map& map) noexcept {
  const Object object(map);
  const Bypasses bypasses(object);
  if (!bypasses.any()) return;
  runtime::Text<512> detail;
  const std::string_view name = map.l_name;
  detail << BaseName(name)
         << " is open with RTLD_DEEPBIND; not seen there: " << bypasses.names();
  if (capture::IsRecording()) {
    capture::CountLoss(capture::LossCause::kBypassed, detail.view());
  } else {
    runtime::Say(detail.view());  // no log to write it to
  }
}

// The library and what it is linked with, which may have come with it.
void Tell(const File& file) noexcept {
  const link_map* map = FindLoaded(file.name.view());
  if (map == nullptr || map->l_ld == nullptr) return;  // could not be opened
  TellObject(*map);
  const Object object(*map);
  for (const ElfW(Dyn)* entry = map->l_ld; entry->d_tag != DT_NULL; ++entry) {
    if (entry->d_tag != DT_NEEDED || object.strings == nullptr) continue;
    const link_map* needed = FindLoaded(object.strings + entry->d_un.d_val);
    if (needed != nullptr && needed->l_ld != nullptr) TellObject(*needed);
  }
}

}  // namespace

void NoteDeepBind(const char* file) noexcept {
  if (file == nullptr || *file == '\0') return;
  // relaxed: a place to write to; published by `ready`.
  const int place = g_count.fetch_add(1, std::memory_order_relaxed);
  if (place >= kMaxFiles) return;
  g_files[place].name << std::string_view(file).substr(0, 500);
  // release: pairs with the acquire in TellDeepBindSlow.
  g_files[place].ready.store(true, std::memory_order_release);
  g_deep_bind_untold.store(true, std::memory_order_relaxed);
}

void TellDeepBindSlow(bool at_end) noexcept {
  if (!at_end && !capture::IsRecording()) return;
  // acquire: one thread at a time; pairs with the release below.
  if (g_telling.exchange(true, std::memory_order_acquire)) return;
  g_deep_bind_untold.store(false, std::memory_order_relaxed);
  for (File& file : g_files) {
    // acquire: pairs with the release in NoteDeepBind.
    if (!file.ready.load(std::memory_order_acquire) || file.told) continue;
    file.told = true;
    Tell(file);
  }
  g_telling.store(false, std::memory_order_release);
}

}  // namespace dstrace::hooks
