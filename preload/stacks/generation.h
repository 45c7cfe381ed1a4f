// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_PRELOAD_STACKS_GENERATION_H_
#define DSTRACE_PRELOAD_STACKS_GENERATION_H_

#include <atomic>
#include <cstdint>

namespace dstrace::stacks {

// Advanced by ModulesChanged(); never 0. Lets a remembered "not there" be
// looked up again after a dlopen.
extern std::atomic<uint32_t> g_module_generation;

}  // namespace dstrace::stacks

#endif  // DSTRACE_PRELOAD_STACKS_GENERATION_H_
