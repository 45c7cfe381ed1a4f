// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_PRELOAD_STACKS_ELF_MODULE_H_
#define DSTRACE_PRELOAD_STACKS_ELF_MODULE_H_

#include <elf.h>

#include <cstddef>
#include <cstdint>

// The loaded modules and their dynamic symbols, read from memory.
//
// dlsym and dladdr take the loader's main lock, which a thread holds while it
// runs a library's constructors; a hook below an allocator's lock must not wait
// for it. dl_iterate_phdr takes only the short lock of the module list. It also
// reaches a libpython that was opened with RTLD_LOCAL.

namespace dstrace::stacks {

struct ElfModule {
  uintptr_t base = 0;  // load bias
  uintptr_t start = 0;
  uintptr_t end = 0;
  const char* name = "";  // as the loader knows it; "" is the executable
  const Elf64_Sym* symbols = nullptr;
  const char* strings = nullptr;
  size_t strings_size = 0;
  const uint32_t* gnu_hash = nullptr;
  const uint32_t* sysv_hash = nullptr;
  const uint8_t* build_id = nullptr;
  uint32_t build_id_size = 0;
};

// Calls `visit` for each module until it returns true; says whether one did.
// The module cannot be unloaded during the call, but may be after it.
using ModuleVisitor = bool (*)(const ElfModule& module, void* argument);
bool ForEachModule(ModuleVisitor visit, void* argument) noexcept;

// Address of a defined function or object, 0 where the module has none.
uintptr_t FindSymbol(const ElfModule& module, const char* name) noexcept;

// As above, with the symbol (its size, its name).
const Elf64_Sym* FindSymbolEntry(const ElfModule& module,
                                 const char* name) noexcept;

// Length of the symbol table; the hash tables carry it only implicitly.
uint32_t CountSymbols(const ElfModule& module) noexcept;

// The dynamic function symbol that covers `pc`, null where there is none.
const Elf64_Sym* FindSymbolAt(const ElfModule& module, uintptr_t pc) noexcept;

// The symbol's name, "" where the table is damaged.
const char* SymbolName(const ElfModule& module,
                       const Elf64_Sym& symbol) noexcept;

// Finds the module that covers `pc` and copies its description.
bool FindModuleAt(uintptr_t pc, ElfModule* module) noexcept;

}  // namespace dstrace::stacks

#endif  // DSTRACE_PRELOAD_STACKS_ELF_MODULE_H_
