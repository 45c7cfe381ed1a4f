// SPDX-License-Identifier: Apache-2.0
#include "preload/capture/recorder.h"

#include "preload/capture/record_tensor.h"
#include "preload/capture/record_with_limit.h"
#include "preload/capture/session.h"
#include "preload/runtime/event_clock.h"
#include "preload/runtime/hot.h"
#include "proto/wire/records.h"

namespace dstrace::capture {
namespace {

using runtime::StackMode;

// Upper bounds, tags and lengths included.
constexpr size_t kSmallRecord = 128;

// Writes one time-carrying record into the thread's chunk.
template <typename Put>
bool Write(Session& session, ThreadState& thread, size_t max_bytes, Put put) {
  const uint64_t now = runtime::EventNow();
  return session.Write(thread, max_bytes, now, put);
}

// The driver is called for few and large things; their stacks are always taken
// in full unless none are wanted.
StackMode DeviceStackMode(StackMode mode) noexcept {
  return mode == StackMode::kPython ? StackMode::kFull : mode;
}

}  // namespace

uint64_t TorchTotals::NowElsewhere() noexcept { return runtime::EventNow(); }

void WriteTorchTotals(Session& session, ThreadState& thread, uint32_t device,
                      uint64_t allocated, uint64_t reserved) noexcept {
  Write(session, thread, kSmallRecord, [&](wire::Encoder& out, uint64_t time) {
    wire::PutTorchTotals(out, time, device, allocated, reserved);
  });
}

DSTRACE_HOT bool WriteTensorSlowly(Session& session, ThreadState& thread,
                                   uint64_t now, uint64_t address, int64_t size,
                                   uint32_t device, uint32_t stack) noexcept {
  if (__builtin_expect(session.flight().on(), 0)) {
    return WriteTensorWithLimit(session, thread, address, size, device, stack);
  }
  if (!session.Reserve(thread, log::ThreadLog::kLeastBatchBytes, now)) {
    return false;
  }
  thread.log.BeginRecent();
  thread.log.AddRecent(now, address, size, stack, device);
  return true;
}

void RecordTorchOutOfMemory(uint64_t size, uint64_t allocated,
                            uint64_t reserved, TorchDevice device) noexcept {
  Session& session = Session::Get();
  ThreadState* const thread = session.Enter();
  if (thread == nullptr) return;
  const uint32_t stack =
      session.Stack(*thread, DeviceStackMode(session.config().stacks), nullptr);
  Write(session, *thread, kSmallRecord, [&](wire::Encoder& out, uint64_t time) {
    wire::PutOutOfMemory(out, time, TorchDeviceCode(device), size, allocated,
                         reserved, stack);
  });
}

void RecordDevice(const DeviceEvent& event) noexcept {
  Session& session = Session::Get();
  ThreadState* const thread = session.Enter();
  if (thread == nullptr) return;
  wire::DeviceEventFields fields{
      .kind = static_cast<uint32_t>(event.kind),
      .api = session.String(*thread, event.api),
      .address = event.address,
      .size = event.size,
      .stack = session.Stack(*thread, DeviceStackMode(session.config().stacks),
                             nullptr),
      .device = event.device,
      .handle = event.handle,
      .stream = event.stream,
      .pool = event.pool,
      .offset = event.offset,
      .flags = event.flags,
      .result = event.result,
      .label = session.String(*thread, event.label),
      .free_bytes = event.free_bytes,
      .total_bytes = event.total_bytes};
  const uint64_t now = event.time != 0 ? event.time : runtime::EventNow();
  if (__builtin_expect(session.flight().on(), 0)) {
    fields.time = now;
    WriteDeviceWithLimit(session, *thread, fields, event.api);
    return;
  }
  session.Write(*thread, wire::kMaxDeviceEventBytes, now,
                [&fields](wire::Encoder& out, uint64_t time) {
                  fields.time = time;
                  wire::PutDeviceEvent(out, fields);
                });
}

void RecordMemorySample(int device, uint64_t free_bytes, uint64_t total_bytes,
                        SampleReason reason) noexcept {
  Session& session = Session::Get();
  ThreadState* const thread = session.Enter();
  if (thread == nullptr) return;
  if (__builtin_expect(session.flight().on(), 0)) {
    WriteSampleWithLimit(session, *thread, device, free_bytes, total_bytes,
                         reason);
    return;
  }
  Write(session, *thread, kSmallRecord, [&](wire::Encoder& out, uint64_t time) {
    wire::PutMemorySample(out, time, device, free_bytes, total_bytes,
                          static_cast<uint32_t>(reason));
  });
}

void RecordStreamEvent(StreamEventKind kind, uint64_t event,
                       uint64_t stream) noexcept {
  Session& session = Session::Get();
  ThreadState* const thread = session.Enter();
  if (thread == nullptr) return;
  Write(session, *thread, wire::kMaxTupleBytes,
        [&](wire::Encoder& out, uint64_t time) {
          wire::PutStreamEvent(out, time, static_cast<uint64_t>(kind), event,
                               stream);
        });
}

void RecordGpu(int index, std::string_view name, std::string_view uuid,
               uint64_t total_bytes) noexcept {
  Session& session = Session::Get();
  if (session.Enter() == nullptr) return;
  session.process().Write(
      ProcessLog::kNoTime, [&](wire::Encoder& out, uint64_t) {
        wire::PutGpu(out, static_cast<uint32_t>(index), name.substr(0, 256),
                     uuid.substr(0, 64), total_bytes);
      });
}

void RecordProperty(std::string_view name, std::string_view value) noexcept {
  Session& session = Session::Get();
  if (session.Enter() == nullptr) return;
  session.process().Write(
      ProcessLog::kNoTime, [&](wire::Encoder& out, uint64_t) {
        wire::PutProperty(out, name.substr(0, 256), value.substr(0, 1024));
      });
}

void RecordMark(MarkKind kind, std::string_view name,
                std::string_view domain) noexcept {
  Session& session = Session::Get();
  ThreadState* const thread = session.Enter();
  if (thread == nullptr) return;
  const uint32_t name_id = session.String(*thread, name);
  const uint32_t domain_id = session.String(*thread, domain);
  Write(session, *thread, kSmallRecord, [&](wire::Encoder& out, uint64_t time) {
    wire::PutMark(out, time, static_cast<uint32_t>(kind), name_id, domain_id);
  });
}

void RecordCupti(const CuptiTotals& totals) noexcept {
  Session& session = Session::Get();
  // CUPTI's own threads come here: they need no place in the log.
  if (!session.recording()) return;
  wire::CuptiKindFields kinds[CuptiTotals::kKinds];
  size_t count = 0;
  for (uint32_t i = 0; i < CuptiTotals::kKinds; ++i) {
    const CuptiTotals::Kind& kind = totals.kinds[i];
    if (kind.allocations == 0 && kind.frees == 0) continue;
    kinds[count++] = {i, kind.allocations, kind.allocated_bytes, kind.frees,
                      kind.freed_bytes};
  }
  wire::CuptiTotalsFields fields{.version = totals.version,
                                 .kinds = {kinds, count},
                                 .pool_operations = totals.pool_operations,
                                 .correlated = totals.correlated,
                                 .dropped = totals.dropped,
                                 .unknown = totals.unknown,
                                 .stopped = totals.stopped};
  session.process().Write(runtime::EventNow(),
                          [&fields](wire::Encoder& out, uint64_t time) {
                            fields.time = time;
                            wire::PutCuptiTotals(out, fields);
                          });
}

void RecordEnd(EndKind kind, int status) noexcept {
  Session& session = Session::Get();
  if (!session.recording()) return;
  session.process().Write(
      runtime::EventNow(), [&](wire::Encoder& out, uint64_t time) {
        wire::PutEnd(out, time, static_cast<uint32_t>(kind), status);
      });
  if (kind != EndKind::kExec) session.Finish();
}

void CountLoss(LossCause cause, std::string_view detail) noexcept {
  Session& session = Session::Get();
  if (!session.is_parents()) session.CountLoss(cause, detail);
}

void ModulesChanged() noexcept { Session::Get().ModulesChanged(); }

uint64_t Now() noexcept { return runtime::EventNow(); }

bool IsRecording() noexcept { return Session::Get().recording(); }

}  // namespace dstrace::capture
