// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_PRELOAD_STACKS_SYMBOL_INDEX_H_
#define DSTRACE_PRELOAD_STACKS_SYMBOL_INDEX_H_

#include "preload/stacks/elf_module.h"

namespace dstrace::stacks {

// As FindSymbolAt, for many look-ups in one module: the first one sorts the
// module's function symbols by address into buckets (about 10 ns a symbol;
// libtorch has hundreds of thousands, which would cost as much to search each
// time), later ones read one bucket. Small modules are searched directly.
//
// The index is mapped memory that is kept for ever: 4 bytes a function. Call it
// while the module cannot be unloaded (from a ModuleVisitor).
// Thread-safety: any thread; no locks: threads that build the same index at the
// same time keep one of them.
const Elf64_Sym* FindIndexedSymbolAt(const ElfModule& module,
                                     uintptr_t pc) noexcept;

}  // namespace dstrace::stacks

#endif  // DSTRACE_PRELOAD_STACKS_SYMBOL_INDEX_H_
