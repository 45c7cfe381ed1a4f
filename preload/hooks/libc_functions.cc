// SPDX-License-Identifier: Apache-2.0
#include "preload/hooks/libc_functions.h"

#include <elf.h>
#include <link.h>

#include <atomic>
#include <cstdint>

namespace dstrace::hooks {
namespace {

// A sanitised host's first dlsym comes from the sanitizer itself, which has
// interposed but not yet found the real strcmp and dl_iterate_phdr: nothing
// here may call libc.
bool Equal(const char* a, const char* b) noexcept {
  while (*a != '\0' && *a == *b) ++a, ++b;
  return *a == *b;
}

// One loaded object's dynamic symbols.
class SymbolTable {
 public:
  explicit SymbolTable(const link_map& object) noexcept : base_(object.l_addr) {
    Read(object.l_ld);
  }

  [[nodiscard]] const char* soname() const noexcept {
    if (strings_ == nullptr || soname_ == 0) return "";
    return strings_ + soname_;
  }

  // The address of the defined function `name`, any version, or null.
  [[nodiscard]] void* Find(const char* name) const noexcept {
    if (hash_ == nullptr || symbols_ == nullptr || strings_ == nullptr) {
      return nullptr;
    }
    // DT_GNU_HASH: bucket count, first hashed symbol, bloom words, bloom
    // shift; then the bloom filter, the buckets and the chains.
    const uint32_t bucket_count = hash_[0];
    const uint32_t first = hash_[1];
    const uint32_t bloom_words = hash_[2];
    const uint32_t* buckets =
        hash_ + 4 + bloom_words * (sizeof(ElfW(Addr)) / 4);
    const uint32_t* chains = buckets + bucket_count;
    if (bucket_count == 0) return nullptr;
    const uint32_t hash = Hash(name);
    uint32_t index = buckets[hash % bucket_count];
    if (index < first) return nullptr;
    for (;; ++index) {
      const uint32_t entry = chains[index - first];
      if ((entry | 1) == (hash | 1) && IsFunction(symbols_[index], name)) {
        return reinterpret_cast<void*>(base_ + symbols_[index].st_value);
      }
      if ((entry & 1) != 0) return nullptr;  // end of the chain
    }
  }

 private:
  void Read(const ElfW(Dyn) * entry) noexcept {
    for (; entry->d_tag != DT_NULL; ++entry) {
      switch (entry->d_tag) {
        case DT_GNU_HASH:
          hash_ = At<uint32_t>(entry->d_un.d_ptr);
          break;
        case DT_SYMTAB:
          symbols_ = At<ElfW(Sym)>(entry->d_un.d_ptr);
          break;
        case DT_STRTAB:
          strings_ = At<char>(entry->d_un.d_ptr);
          break;
        case DT_SONAME:
          soname_ = entry->d_un.d_val;
          break;
        default:
          break;
      }
    }
  }

  // glibc relocates these entries in place; other loaders leave offsets.
  template <class T>
  const T* At(ElfW(Addr) value) const noexcept {
    return reinterpret_cast<const T*>(value < base_ ? base_ + value : value);
  }

  bool IsFunction(const ElfW(Sym) & symbol, const char* name) const noexcept {
    return symbol.st_shndx != SHN_UNDEF && symbol.st_value != 0 &&
           ELF64_ST_TYPE(symbol.st_info) == STT_FUNC &&
           Equal(strings_ + symbol.st_name, name);
  }

  static uint32_t Hash(const char* name) noexcept {
    uint32_t hash = 5381;
    for (; *name != '\0'; ++name) {
      hash = hash * 33 + static_cast<unsigned char>(*name);
    }
    return hash;
  }

  const ElfW(Addr) base_;
  const uint32_t* hash_ = nullptr;
  const ElfW(Sym) * symbols_ = nullptr;
  const char* strings_ = nullptr;
  ElfW(Xword) soname_ = 0;
};

template <class F>
void Fill(const SymbolTable& table, const char* name, F*& function) noexcept {
  if (function == nullptr) {
    function = reinterpret_cast<F*>(table.Find(name));
  }
}

void FindIn(const link_map& object, LibcFunctions& functions) noexcept {
  if (object.l_ld == nullptr) return;
  const SymbolTable table(object);
  // dlsym and its kin moved from libdl to libc in glibc 2.34.
  if (!Equal(table.soname(), "libc.so.6") &&
      !Equal(table.soname(), "libdl.so.2")) {
    return;
  }
  Fill(table, "dlsym", functions.dlsym);
  Fill(table, "dlvsym", functions.dlvsym);
  Fill(table, "dlopen", functions.dlopen);
  Fill(table, "dlclose", functions.dlclose);
  Fill(table, "dladdr1", functions.dladdr1);
}

LibcFunctions g_functions;
std::atomic<bool> g_found{false};

}  // namespace

const LibcFunctions& Libc() noexcept {
  // acquire: pairs with the release below.
  if (!g_found.load(std::memory_order_acquire)) {
    LibcFunctions functions;
    for (const link_map* object = _r_debug.r_map; object != nullptr;
         object = object->l_next) {
      FindIn(*object, functions);
    }
    // Two threads may do this at once; both write the same values.
    if (functions.dlsym != nullptr) {
      g_functions = functions;
      // release: pairs with the acquire above.
      g_found.store(true, std::memory_order_release);
    }
  }
  return g_functions;
}

}  // namespace dstrace::hooks
