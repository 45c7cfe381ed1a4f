// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_CUPTI_CUPTI_ABI_H_
#define DSTRACE_CUPTI_CUPTI_ABI_H_

// The part of CUPTI's activity API that dstrace uses, in declarations of our
// own (docs/design/0002): one build serves CUDA 11.8 to 13, with or without
// CUPTI's headers. tests/cupti/cupti_abi_check.cc holds them against NVIDIA's.

#include <cstddef>
#include <cstdint>

namespace dstrace::cupti {

inline constexpr int kSuccess = 0;
inline constexpr uint32_t kKindMemory2 = 49;
inline constexpr uint32_t kKindMemoryPool = 50;
inline constexpr uint32_t kFlushForced = 1;

inline constexpr uint32_t kOperationAllocation = 1;
inline constexpr uint32_t kOperationRelease = 2;

// The fields that CUpti_ActivityMemory2, 3 and 4 have in common. Later ones
// only append.
struct MemoryRecord {
  uint32_t kind;
  uint32_t operation;
  uint32_t memory_kind;
  uint32_t correlation_id;
  uint64_t address;
  uint64_t bytes;
  uint64_t timestamp;
  uint64_t pc;
  uint32_t process_id;
  uint32_t device_id;
};

// How long the records are that a CUPTI of that cuptiGetVersion() writes.
struct RecordSizes {
  size_t memory;
  size_t pool;
};

//   CUDA 11.2: Memory2, Pool   11.6: Memory3, Pool2   12.6: Memory4
//   CUDA 13.0: Pool3
constexpr RecordSizes SizesOf(uint32_t version) noexcept {
  constexpr uint32_t k11_6 = 17;
  constexpr uint32_t k12_6 = 24;
  constexpr uint32_t k13_0 = 130000;
  return {version >= k12_6   ? size_t{128}
          : version >= k11_6 ? size_t{120}
                             : size_t{112},
          version >= k13_0   ? size_t{80}
          : version >= k11_6 ? size_t{72}
                             : size_t{64}};
}

using BufferRequested = void (*)(uint8_t** buffer, size_t* size,
                                 size_t* max_records);
using BufferCompleted = void (*)(void* context, uint32_t stream,
                                 uint8_t* buffer, size_t size, size_t valid);

// CUPTI's functions, by name: X(name, parameters).
#define DSTRACE_CUPTI_FUNCTIONS(X)                                      \
  X(cuptiGetVersion, (uint32_t*))                                       \
  X(cuptiActivityRegisterCallbacks, (BufferRequested, BufferCompleted)) \
  X(cuptiActivityEnable, (uint32_t))                                    \
  X(cuptiActivityDisable, (uint32_t))                                   \
  X(cuptiActivityFlushAll, (uint32_t))                                  \
  X(cuptiActivityGetNextRecord, (uint8_t*, size_t, uint8_t**))          \
  X(cuptiActivityGetNumDroppedRecords, (void*, uint32_t, size_t*))

template <class Function>
using Pointer = Function*;

struct Functions {
#define DSTRACE_CUPTI_MEMBER(name, parameters) \
  Pointer<int parameters> name = nullptr;
  DSTRACE_CUPTI_FUNCTIONS(DSTRACE_CUPTI_MEMBER)
#undef DSTRACE_CUPTI_MEMBER
};

}  // namespace dstrace::cupti

#endif  // DSTRACE_CUPTI_CUPTI_ABI_H_
