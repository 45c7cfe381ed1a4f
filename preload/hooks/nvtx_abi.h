// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_PRELOAD_HOOKS_NVTX_ABI_H_
#define DSTRACE_PRELOAD_HOOKS_NVTX_ABI_H_

// The part of NVTX's injection interface that dstrace uses, in declarations of
// our own (docs/design/0002). The interface is the same in NVTX 2 and 3;
// tests/hooks/nvtx_abi_check.cc holds it against NVIDIA's headers.

#include <cstddef>
#include <cstdint>

namespace dstrace::hooks::nvtx {

struct EventAttributes {
  uint16_t version;
  uint16_t size;
  uint32_t category;
  int32_t color_type;
  uint32_t color;
  int32_t payload_type;
  int32_t reserved;
  uint64_t payload;
  int32_t message_type;
  const void* message;  // const char*, const wchar_t* or a registered string
};

inline constexpr int32_t kMessageAscii = 1;
inline constexpr int32_t kMessageRegistered = 3;

// What push and pop return where nobody counts the levels.
inline constexpr int kNoTracking = -2;

using RangeId = uint64_t;

// Where NVTX keeps the functions it calls: module 1 and, with domains, 5.
inline constexpr uint32_t kTableCallbacks = 1;
inline constexpr int kModuleCore = 1;
inline constexpr int kModuleCore2 = 5;

enum Core : unsigned {
  kMarkEx = 1,
  kMarkA = 2,
  kRangeStartEx = 4,
  kRangeStartA = 5,
  kRangeEnd = 7,
  kRangePushEx = 8,
  kRangePushA = 9,
  kRangePushW = 10,
  kRangePop = 11,
};

enum Core2 : unsigned {
  kDomainMarkEx = 1,
  kDomainRangeStartEx = 2,
  kDomainRangeEnd = 3,
  kDomainRangePushEx = 4,
  kDomainRangePop = 5,
  kDomainRegisterStringA = 10,
  kDomainCreateA = 12,
};

using Function = void (*)();
using FunctionTable = Function**;

struct CallbacksTable {
  size_t struct_size;
  int (*get_module_function_table)(int module, FunctionTable* table,
                                   unsigned* size);
};

using GetExportTable = const void* (*)(uint32_t table);

}  // namespace dstrace::hooks::nvtx

#endif  // DSTRACE_PRELOAD_HOOKS_NVTX_ABI_H_
