// SPDX-License-Identifier: Apache-2.0
//
// Compiles only if cupti_abi.h says what NVIDIA's headers say.

#include <cupti.h>

#include <type_traits>

#include "cupti/cupti_abi.h"

namespace dstrace::cupti {

#define DSTRACE_SAME_FIELD(ours, theirs)                  \
  static_assert(offsetof(MemoryRecord, ours) ==           \
                offsetof(CUpti_ActivityMemory4, theirs)); \
  static_assert(offsetof(MemoryRecord, ours) ==           \
                offsetof(CUpti_ActivityMemory2, theirs))
DSTRACE_SAME_FIELD(kind, kind);
DSTRACE_SAME_FIELD(operation, memoryOperationType);
DSTRACE_SAME_FIELD(memory_kind, memoryKind);
DSTRACE_SAME_FIELD(correlation_id, correlationId);
DSTRACE_SAME_FIELD(address, address);
DSTRACE_SAME_FIELD(bytes, bytes);
DSTRACE_SAME_FIELD(timestamp, timestamp);
DSTRACE_SAME_FIELD(pc, PC);
DSTRACE_SAME_FIELD(process_id, processId);
DSTRACE_SAME_FIELD(device_id, deviceId);

static_assert(SizesOf(15).memory == sizeof(CUpti_ActivityMemory2));
static_assert(SizesOf(17).memory == sizeof(CUpti_ActivityMemory3));
static_assert(SizesOf(24).memory == sizeof(CUpti_ActivityMemory4));
static_assert(SizesOf(15).pool == sizeof(CUpti_ActivityMemoryPool));
static_assert(SizesOf(17).pool == sizeof(CUpti_ActivityMemoryPool2));
static_assert(SizesOf(130000).pool == sizeof(CUpti_ActivityMemoryPool3));

static_assert(kKindMemory2 == CUPTI_ACTIVITY_KIND_MEMORY2);
static_assert(kKindMemoryPool == CUPTI_ACTIVITY_KIND_MEMORY_POOL);
static_assert(kFlushForced == CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
static_assert(static_cast<int>(kOperationAllocation) ==
              CUPTI_ACTIVITY_MEMORY_OPERATION_TYPE_ALLOCATION);
static_assert(static_cast<int>(kOperationRelease) ==
              CUPTI_ACTIVITY_MEMORY_OPERATION_TYPE_RELEASE);

// Handles and enums differ in name only.
static_assert(sizeof(CUcontext) == sizeof(void*));
static_assert(sizeof(CUpti_ActivityKind) == sizeof(uint32_t));
static_assert(sizeof(CUptiResult) == sizeof(int));
static_assert(
    std::is_same_v<CUpti_BuffersCallbackRequestFunc, BufferRequested>);

}  // namespace dstrace::cupti
