// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_PRELOAD_HOOKS_LIBC_FUNCTIONS_H_
#define DSTRACE_PRELOAD_HOOKS_LIBC_FUNCTIONS_H_

// libc's own loader functions, found in its symbol table: the names dlsym,
// dlvsym and dlclose are ours in this process, so they cannot be asked for.
//
// Thread-safety: thread-safe; the first call finds them.

#include <dlfcn.h>

namespace dstrace::hooks {

struct LibcFunctions {
  decltype(&::dlsym) dlsym = nullptr;
  decltype(&::dlvsym) dlvsym = nullptr;
  decltype(&::dlopen) dlopen = nullptr;
  decltype(&::dlclose) dlclose = nullptr;
  int (*dladdr1)(const void*, Dl_info*, void**, int) = nullptr;
};

// Null members: this libc (or, before 2.34, a process without libdl) has none.
const LibcFunctions& Libc() noexcept;

}  // namespace dstrace::hooks

#endif  // DSTRACE_PRELOAD_HOOKS_LIBC_FUNCTIONS_H_
