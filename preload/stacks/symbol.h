// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_PRELOAD_STACKS_SYMBOL_H_
#define DSTRACE_PRELOAD_STACKS_SYMBOL_H_

#include <cstdint>

namespace dstrace::stacks {

struct ModuleInfo {
  static constexpr int kMaxBuildId = 64;

  uintptr_t base;   // load bias: address = base + the file's virtual address
  uintptr_t start;  // first and one past the last mapped address
  uintptr_t end;
  uint8_t build_id[kMaxBuildId];
  uint32_t build_id_size;  // 0 where the module has none
  char path[512];          // absolute for the executable; cut if longer
};

struct SymbolInfo {
  char name[512];   // as in the dynamic symbol table (mangled); empty if none
  uint64_t offset;  // of the address into that symbol
  ModuleInfo module;
};

// Describes the code at `pc` (for a return address pass `pc - 1`). False where
// no module covers it. Symbols are taken from the dynamic symbol table only:
// a static function gets its module and no name.
//
// Takes the loader's short list lock, as any dl_iterate_phdr, never the one
// held while constructors run; no heap; errno preserved.
// Thread-safety: any thread.
bool DescribeNative(uintptr_t pc, SymbolInfo* info) noexcept;

// The module part of it alone, cheaper.
bool DescribeModule(uintptr_t pc, ModuleInfo* info) noexcept;

}  // namespace dstrace::stacks

#endif  // DSTRACE_PRELOAD_STACKS_SYMBOL_H_
