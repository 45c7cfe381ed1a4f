// SPDX-License-Identifier: Apache-2.0
#include "preload/capture/record_with_limit.h"

#include <algorithm>
#include <string_view>

#include "preload/capture/torch_totals.h"
#include "preload/runtime/event_clock.h"
#include "preload/runtime/guard.h"

namespace dstrace::capture {
namespace {

constexpr size_t kSmallRecord = 128;

// Few in the life of a process, and what is told about the device or the
// communicators rests on them.
bool MattersForEver(const wire::DeviceEventFields& event) noexcept {
  switch (static_cast<DeviceKind>(event.kind)) {
    case DeviceKind::kContextCreate:
    case DeviceKind::kContextDestroy:
      return event.flags != 0;  // 0: a reference came or went
    case DeviceKind::kCommunicator:
    case DeviceKind::kLimit:
      return true;
    default:
      return false;
  }
}

// As in the analyzer: the end of a primary context frees what was in it.
bool EndsContext(const wire::DeviceEventFields& event,
                 const char* api) noexcept {
  return event.flags != 0 && api != nullptr &&
         std::string_view(api).find("PrimaryCtx") != std::string_view::npos;
}

}  // namespace

bool WriteTensorWithLimit(Session& session, ThreadState& thread,
                          uint64_t address, int64_t size, uint32_t device,
                          uint32_t stack) noexcept {
  const runtime::KeepErrno keep_errno;
  // Its time was read, but from here on this thread may wait for a checkpoint,
  // whose time is later.
  thread.log.EndEvent();
  FlightRecorder& flight = session.flight();
  flight.CatchUpIfDue(*thread.live);
  const bool has_room = session.Reserve(
      thread, log::ThreadLog::kLeastBatchBytes, runtime::EventNow());
  bool ok = true;
  {
    const runtime::MutexLock lock(thread.live->mutex());
    // After the lock was taken, so after the checkpoint that held it.
    const uint64_t now = TorchTotals::Now(
        device, std::max(runtime::EventNow(), thread.log.latest()));
    if (has_room) {
      thread.log.BeginRecent();
      thread.log.AddRecent(now, address, size, stack, device);
    } else {
      ok = flight.tensors().Add(
          *thread.live, {.key = address,
                         .size = size > 0 ? static_cast<uint64_t>(size) : 0,
                         .time = now,
                         .stack = stack,
                         .device = device,
                         .thread = thread.log.thread()});
    }
  }
  if (!ok) session.CountLoss(LossCause::kNoMemory, {});
  return has_room;
}

void WriteDeviceWithLimit(Session& session, ThreadState& thread,
                          wire::DeviceEventFields& fields,
                          const char* api) noexcept {
  FlightRecorder& flight = session.flight();
  const bool reserved =
      session.Reserve(thread, wire::kMaxDeviceEventBytes, fields.time);
  const runtime::MutexLock lock(flight.events().mutex());
  const bool stale = flight.events().IsStale(fields);
  // A free whose place has changed hands since keeps its own time: after the
  // checkpoint it would be the free of somebody else's block, or of none.
  const bool is_past = stale || flight.events().FreesNothing(fields);
  uint64_t now = is_past ? fields.time : flight.AfterCheckpoint(fields.time);
  const auto put = [&fields](wire::Encoder& out, uint64_t time) {
    fields.time = time;
    wire::PutDeviceEvent(out, fields);
  };
  const bool pin =
      fields.result == 0 && MattersForEver(fields) && flight.MayPin();
  if (pin) {
    session.WritePinned(thread, wire::kMaxDeviceEventBytes, now, put);
  } else if (reserved) {
    session.PutRecord(thread, now, put);
    now = thread.log.last_time();
  }
  if (fields.result != 0 || stale) return;
  fields.time = now;
  if (!flight.events().Apply(fields, thread.log.thread(),
                             EndsContext(fields, api))) {
    session.CountLoss(LossCause::kNoMemory, {});
  }
}

void WriteSampleWithLimit(Session& session, ThreadState& thread, int device,
                          uint64_t free_bytes, uint64_t total_bytes,
                          SampleReason reason) noexcept {
  FlightRecorder& flight = session.flight();
  const bool reserved =
      session.Reserve(thread, kSmallRecord, runtime::EventNow());
  const runtime::MutexLock lock(flight.events().mutex());
  const uint64_t now = runtime::EventNow();
  const auto put = [&](wire::Encoder& out, uint64_t time) {
    wire::PutMemorySample(out, time, device, free_bytes, total_bytes,
                          static_cast<uint32_t>(reason));
  };
  const bool pin =
      (reason == SampleReason::kContext || reason == SampleReason::kFirst) &&
      flight.MayPin();
  if (pin) {
    session.WritePinned(thread, kSmallRecord, now, put);
  } else if (reserved) {
    session.PutRecord(thread, now, put);
  }
  flight.events().Apply(device, free_bytes, total_bytes);
}

}  // namespace dstrace::capture
