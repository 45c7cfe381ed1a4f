// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_PROTO_WIRE_RECORDS_H_
#define DSTRACE_PROTO_WIRE_RECORDS_H_

// One function per record kind of proto/trace.proto. Each writes a complete
// field of Records, tag and length included.
//
// `time` arguments are differences in nanoseconds to the time-carrying record
// before. tests/wire parses every one of these with libprotobuf.

#include <cstdint>
#include <span>
#include <string_view>

#include "proto/wire/encoder.h"
#include "proto/wire/layout.h"
#include "proto/wire/tensor_record.h"

namespace dstrace::wire {

inline void PutStreamEvent(Encoder& out, uint64_t time, uint64_t kind,
                           uint64_t event, uint64_t stream) noexcept {
  internal::PutTuple(out, RecordField::kStreamEvent,
                     {time, kind, event, stream});
}

// Fields of DeviceEvent, ids already resolved.
struct DeviceEventFields {
  uint64_t time = 0;
  uint32_t kind = 0;
  uint32_t api = 0;
  uint64_t address = 0;
  uint64_t size = 0;
  uint32_t stack = 0;
  int64_t device = 0;
  uint64_t handle = 0;
  uint64_t stream = 0;
  uint64_t pool = 0;
  uint64_t offset = 0;
  uint64_t flags = 0;
  int64_t result = 0;
  uint32_t label = 0;
  uint64_t free_bytes = 0;
  uint64_t total_bytes = 0;
};
inline constexpr size_t kMaxDeviceEventBytes = 4 + 16 * (1 + kMaxVarintBytes);

namespace internal {

inline void PutDeviceEventAs(Encoder& out, uint32_t field,
                             const DeviceEventFields& e) noexcept {
  const size_t body = out.Begin(field);
  out.Uint(1, e.time);
  out.Uint(2, e.kind);
  out.Uint(3, e.api);
  out.Uint(4, e.address);
  out.Uint(5, e.size);
  out.Uint(6, e.stack);
  out.Sint(7, e.device);
  out.Uint(8, e.handle);
  out.Uint(9, e.stream);
  out.Uint(10, e.pool);
  out.Uint(11, e.offset);
  out.Uint(12, e.flags);
  out.Sint(13, e.result);
  out.Uint(14, e.label);
  out.Uint(15, e.free_bytes);
  out.Uint(16, e.total_bytes);
  out.End(body);
}

}  // namespace internal

inline void PutDeviceEvent(Encoder& out, const DeviceEventFields& e) noexcept {
  internal::PutDeviceEventAs(
      out, static_cast<uint32_t>(RecordField::kDeviceEvent), e);
}

// `field` is kMemorySample, or kLiveSample with an absolute time.
inline void PutMemorySample(
    Encoder& out, uint64_t time, int64_t device, uint64_t free_bytes,
    uint64_t total_bytes, uint32_t reason,
    RecordField field = RecordField::kMemorySample) noexcept {
  const size_t body = out.Begin(static_cast<uint32_t>(field));
  out.Uint(1, time);
  out.Sint(2, device);
  out.Uint(3, free_bytes);
  out.Uint(4, total_bytes);
  out.Uint(5, reason);
  out.End(body);
}

// `field` is kTorchTotals, or kLiveTotals with an absolute time.
inline void PutTorchTotals(
    Encoder& out, uint64_t time, uint32_t device, uint64_t allocated,
    uint64_t reserved, RecordField field = RecordField::kTorchTotals) noexcept {
  const size_t body = out.Begin(static_cast<uint32_t>(field));
  out.Uint(1, time);
  out.Uint(2, device);
  out.Uint(3, allocated);
  out.Uint(4, reserved);
  out.End(body);
}

inline void PutOutOfMemory(Encoder& out, uint64_t time, uint32_t device,
                           uint64_t size, uint64_t allocated, uint64_t reserved,
                           uint32_t stack) noexcept {
  const size_t body =
      out.Begin(static_cast<uint32_t>(RecordField::kOutOfMemory));
  out.Uint(1, time);
  out.Uint(2, device);
  out.Uint(3, size);
  out.Uint(4, allocated);
  out.Uint(5, reserved);
  out.Uint(6, stack);
  out.End(body);
}

inline void PutMark(Encoder& out, uint64_t time, uint32_t kind, uint32_t name,
                    uint32_t domain) noexcept {
  const size_t body = out.Begin(static_cast<uint32_t>(RecordField::kMark));
  out.Uint(1, time);
  out.Uint(2, kind);
  out.Uint(3, name);
  out.Uint(4, domain);
  out.End(body);
}

inline void PutEnd(Encoder& out, uint64_t time, uint32_t kind,
                   int64_t status) noexcept {
  const size_t body = out.Begin(static_cast<uint32_t>(RecordField::kEnd));
  out.Uint(1, time);
  out.Uint(2, kind);
  out.Sint(3, status);
  out.End(body);
}

inline void PutString(Encoder& out, uint32_t id,
                      std::string_view value) noexcept {
  const size_t body = out.Begin(static_cast<uint32_t>(RecordField::kString));
  out.Uint(1, id);
  out.Bytes(2, value);
  out.End(body);
}

inline void PutModule(Encoder& out, uint32_t id, uint32_t path, uint64_t base,
                      uint64_t size, std::string_view build_id) noexcept {
  const size_t body = out.Begin(static_cast<uint32_t>(RecordField::kModule));
  out.Uint(1, id);
  out.Uint(2, path);
  out.Uint(3, base);
  out.Uint(4, size);
  out.Bytes(5, build_id);
  out.End(body);
}

struct FrameFields {
  uint32_t id = 0;
  bool python = false;
  uint64_t pc = 0;
  uint32_t module = 0;
  uint32_t name = 0;
  uint64_t name_offset = 0;
  uint32_t file = 0;
  uint32_t line = 0;
  uint32_t first_line = 0;
};

inline void PutFrame(Encoder& out, const FrameFields& f) noexcept {
  const size_t body = out.Begin(static_cast<uint32_t>(RecordField::kFrame));
  out.Uint(1, f.id);
  out.Uint(2, f.python ? 1 : 0);
  out.Uint(3, f.pc);
  out.Uint(4, f.module);
  out.Uint(5, f.name);
  out.Uint(6, f.name_offset);
  out.Uint(7, f.file);
  out.Uint(8, f.line);
  out.Uint(9, f.first_line);
  out.End(body);
}

inline void PutStack(Encoder& out, uint32_t id,
                     std::span<const uint32_t> frames,
                     bool truncated) noexcept {
  const size_t body = out.Begin(static_cast<uint32_t>(RecordField::kStack));
  out.Uint(1, id);
  const size_t packed = out.Begin(2);
  for (const uint32_t frame : frames) out.RawVarint(frame);
  out.End(packed);
  out.Bool(3, truncated);
  out.End(body);
}

inline void PutThread(Encoder& out, uint32_t tid,
                      std::string_view name) noexcept {
  const size_t body = out.Begin(static_cast<uint32_t>(RecordField::kThread));
  out.Uint(1, tid);
  out.Bytes(2, name);
  out.End(body);
}

inline void PutGpu(Encoder& out, uint32_t index, std::string_view name,
                   std::string_view uuid, uint64_t total_bytes) noexcept {
  const size_t body = out.Begin(static_cast<uint32_t>(RecordField::kGpu));
  out.Uint(1, index);
  out.Bytes(2, name);
  out.Bytes(3, uuid);
  out.Uint(4, total_bytes);
  out.End(body);
}

inline void PutProperty(Encoder& out, std::string_view name,
                        std::string_view value) noexcept {
  const size_t body = out.Begin(static_cast<uint32_t>(RecordField::kProperty));
  out.Bytes(1, name);
  out.Bytes(2, value);
  out.End(body);
}

struct CuptiKindFields {
  uint32_t kind = 0;
  uint64_t allocations = 0;
  uint64_t allocated_bytes = 0;
  uint64_t frees = 0;
  uint64_t freed_bytes = 0;
};

struct CuptiTotalsFields {
  uint64_t time = 0;
  uint32_t version = 0;
  std::span<const CuptiKindFields> kinds;
  uint64_t pool_operations = 0;
  uint64_t correlated = 0;
  uint64_t dropped = 0;
  uint64_t unknown = 0;
  bool stopped = false;
};

inline void PutCuptiTotals(Encoder& out, const CuptiTotalsFields& t) noexcept {
  const size_t body =
      out.Begin(static_cast<uint32_t>(RecordField::kCuptiTotals));
  out.Uint(1, t.time);
  out.Uint(2, t.version);
  for (const CuptiKindFields& kind : t.kinds) {
    const size_t one = out.Begin(3);
    out.Uint(1, kind.kind);
    out.Uint(2, kind.allocations);
    out.Uint(3, kind.allocated_bytes);
    out.Uint(4, kind.frees);
    out.Uint(5, kind.freed_bytes);
    out.End(one);
  }
  out.Uint(4, t.pool_operations);
  out.Uint(5, t.correlated);
  out.Uint(6, t.dropped);
  out.Uint(7, t.unknown);
  out.Bool(8, t.stopped);
  out.End(body);
}

// What was live, for a file with a limit.

inline void PutCheckpoint(Encoder& out, uint64_t time,
                          uint64_t tracer_bytes) noexcept {
  const size_t body =
      out.Begin(static_cast<uint32_t>(RecordField::kCheckpoint));
  out.Uint(1, time);
  out.Uint(2, tracer_bytes);
  out.End(body);
}

struct LiveTensorFields {
  uint64_t age = 0;  // nanoseconds before the checkpoint
  uint32_t thread = 0;
  uint32_t stack = 0;
  uint64_t address = 0;
  uint64_t size = 0;
  uint32_t device = 0;
};

inline void PutLiveTensor(Encoder& out, const LiveTensorFields& f) noexcept {
  internal::PutTuple(out, RecordField::kLiveTensor,
                     {f.age, f.thread, f.stack, f.address, f.size, f.device});
}

inline constexpr size_t kMaxLiveEventBytes = kMaxDeviceEventBytes + 32;

inline void PutLiveEvent(Encoder& out, uint32_t thread,
                         const DeviceEventFields& event) noexcept {
  const size_t body = out.Begin(static_cast<uint32_t>(RecordField::kLiveEvent));
  out.Uint(1, thread);
  internal::PutDeviceEventAs(out, 2, event);
  out.End(body);
}

// Names what was lost; the count is in the cause's slot.
inline void PutLossDetail(Encoder& out, uint32_t cause,
                          std::string_view detail) noexcept {
  const size_t body = out.Begin(static_cast<uint32_t>(RecordField::kLoss));
  out.Uint(1, cause);
  out.Bytes(3, detail);
  out.End(body);
}

}  // namespace dstrace::wire

#endif  // DSTRACE_PROTO_WIRE_RECORDS_H_
