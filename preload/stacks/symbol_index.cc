// SPDX-License-Identifier: Apache-2.0
#include "preload/stacks/symbol_index.h"

#include <sys/mman.h>

#include <atomic>

namespace dstrace::stacks {
namespace {

// Addresses that share a bucket: about ten functions of ordinary C++.
constexpr unsigned kBucketShift = 11;
constexpr uint32_t kSmallestIndexed = 1024;

// One mapping: this header, bucket starts, symbol numbers.
//
//   starts   | 0 | 2 | 2 | 5 | ...        bucket b owns [starts[b],
//   starts[b+1]) numbers  | 17 40 | | 3 9 21 | ...     unsorted within a bucket
struct Index {
  uintptr_t base;
  uintptr_t end;
  const Elf64_Sym* symbols;
  uint32_t bucket_count;

  uint32_t* starts() noexcept { return reinterpret_cast<uint32_t*>(this + 1); }
  uint32_t* numbers() noexcept { return starts() + bucket_count + 1; }
};

// Published with release, read with acquire; never taken away: a module that
// was unloaded leaves an entry that nothing asks for.
constexpr int kMaxIndexes = 256;
std::atomic<Index*> g_indexes[kMaxIndexes];

bool IsFunction(const Elf64_Sym& symbol) noexcept {
  const unsigned type = ELF64_ST_TYPE(symbol.st_info);
  return symbol.st_shndx != SHN_UNDEF &&
         (type == STT_FUNC || type == STT_GNU_IFUNC);
}

Index* Map(uint32_t buckets, uint32_t functions, size_t* size) noexcept {
  *size = sizeof(Index) + (size_t{buckets} + 1 + functions) * sizeof(uint32_t);
  void* memory = mmap(nullptr, *size, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return memory == MAP_FAILED ? nullptr : static_cast<Index*>(memory);
}

// A counting sort: one pass counts, one places.
Index* Build(const ElfModule& module, uint32_t count, size_t* size) noexcept {
  const uintptr_t span = module.end - module.base;
  const auto buckets = static_cast<uint32_t>((span >> kBucketShift) + 1);
  const auto is_indexed = [span](const Elf64_Sym& symbol) {
    return IsFunction(symbol) && symbol.st_value < span;
  };
  uint32_t functions = 0;
  for (uint32_t i = 1; i < count; ++i)
    functions += is_indexed(module.symbols[i]) ? 1 : 0;
  Index* index = Map(buckets, functions, size);
  if (index == nullptr) return nullptr;
  *index = {module.base, module.end, module.symbols, buckets};
  uint32_t* starts = index->starts();
  for (uint32_t i = 1; i < count; ++i) {
    const Elf64_Sym& symbol = module.symbols[i];
    if (is_indexed(symbol)) ++starts[symbol.st_value >> kBucketShift];
  }
  // Turns counts into ends; placing from the back turns ends into starts.
  for (uint32_t b = 1; b <= buckets; ++b) starts[b] += starts[b - 1];
  for (uint32_t i = 1; i < count; ++i) {
    const Elf64_Sym& symbol = module.symbols[i];
    if (is_indexed(symbol))
      index->numbers()[--starts[symbol.st_value >> kBucketShift]] = i;
  }
  return index;
}

bool IsOf(const Index& index, const ElfModule& module) noexcept {
  return index.base == module.base && index.symbols == module.symbols &&
         index.end == module.end;
}

// Null where the module is small, or there is neither room nor memory.
Index* IndexOf(const ElfModule& module) noexcept {
  for (std::atomic<Index*>& slot : g_indexes) {
    Index* index = slot.load(std::memory_order_acquire);
    if (index == nullptr) {
      const uint32_t count = CountSymbols(module);
      if (count < kSmallestIndexed) return nullptr;
      size_t size = 0;
      Index* built = Build(module, count, &size);
      if (built == nullptr) return nullptr;
      if (slot.compare_exchange_strong(index, built, std::memory_order_acq_rel))
        return built;
      munmap(built, size);  // `index` is now what another thread put there
    }
    if (IsOf(*index, module)) return index;
  }
  return nullptr;
}

// The last function that starts at or before `value`.
const Elf64_Sym* NearestBefore(Index* index, uintptr_t value) noexcept {
  const uintptr_t last = index->bucket_count - 1;
  uintptr_t bucket = value >> kBucketShift;
  if (bucket > last) bucket = last;
  for (;; --bucket) {
    const Elf64_Sym* nearest = nullptr;
    for (uint32_t i = index->starts()[bucket]; i < index->starts()[bucket + 1];
         ++i) {
      const Elf64_Sym& symbol = index->symbols[index->numbers()[i]];
      if (symbol.st_value > value) continue;
      // Of aliases, the one that covers most.
      if (nearest == nullptr || symbol.st_value > nearest->st_value ||
          (symbol.st_value == nearest->st_value &&
           symbol.st_size > nearest->st_size)) {
        nearest = &symbol;
      }
    }
    if (nearest != nullptr || bucket == 0) return nearest;
  }
}

}  // namespace

const Elf64_Sym* FindIndexedSymbolAt(const ElfModule& module,
                                     uintptr_t pc) noexcept {
  if (module.symbols == nullptr || module.strings == nullptr) return nullptr;
  Index* index = IndexOf(module);
  if (index == nullptr) return FindSymbolAt(module, pc);
  const uintptr_t value = pc - module.base;
  const Elf64_Sym* symbol = NearestBefore(index, value);
  return symbol != nullptr && value - symbol->st_value < symbol->st_size
             ? symbol
             : nullptr;
}

}  // namespace dstrace::stacks
