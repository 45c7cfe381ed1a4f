// SPDX-License-Identifier: Apache-2.0
#include "preload/capture/flight_recorder.h"

#include <algorithm>

#include "preload/capture/recorder.h"
#include "preload/runtime/event_clock.h"

namespace dstrace::capture {
namespace {

// What a live thing takes in a checkpoint, about.
constexpr size_t kTensorBytes = 32;
constexpr size_t kEventBytes = 96;
constexpr size_t kSmallRecord = 128;

FlightRecorder& Self(void* self) noexcept {
  return *static_cast<FlightRecorder*>(self);
}

}  // namespace

bool FlightRecorder::Start(bool on) noexcept {
  on_ = false;
  if (!on) return true;
  if (log_ == nullptr) {
    log_ =
        static_cast<log::ThreadLog*>(runtime::MapPages(sizeof(log::ThreadLog)));
  }
  on_ = log_ != nullptr && pinned_.Start();
  return on_;
}

log::Checkpointer FlightRecorder::checkpointer() noexcept {
  return {.context = this,
          .size = &FlightRecorder::SizeOf,
          .write = &FlightRecorder::Write,
          .publish = &FlightRecorder::Publish};
}

uint32_t FlightRecorder::SizeOf(void* self) noexcept {
  FlightRecorder& flight = Self(self);
  const size_t bytes =
      flight.tensors_.size() * kTensorBytes +
      // relaxed: an estimate.
      flight.event_count_.load(std::memory_order_relaxed) * kEventBytes;
  return static_cast<uint32_t>(bytes / wire::kPayloadBytes) + 1;
}

void FlightRecorder::Publish(void* self, uint64_t time) noexcept {
  Self(self).process_.SetHistoryStart(time);
}

bool FlightRecorder::Write(void* self, uint64_t* time) noexcept {
  FlightRecorder& flight = Self(self);
  flight.tensors_.LockAll();
  flight.events_.mutex().Lock();
  flight.file_.BeginCheckpoint();
  const uint64_t now = runtime::EventNow();
  *time = now;
  const bool complete = flight.CatchUp(now) && flight.WriteAll(now);
  flight.log_->Close(flight.file_);
  // relaxed: an estimate.
  flight.event_count_.store(flight.events_.size(), std::memory_order_relaxed);
  if (now > flight.floor_) flight.floor_ = now;
  // Whatever is recorded from here on has a later time.
  while (runtime::EventNow() <= now) {
  }
  flight.events_.mutex().Unlock();
  flight.tensors_.UnlockAll();
  return complete;
}

// False: a thread is stuck in an event, there is no checkpoint now.
bool FlightRecorder::CatchUp(uint64_t now) noexcept {
  const LiveTensors::Outcome outcome = tensors_.CatchUp(now);
  if (outcome == LiveTensors::Outcome::kNoMemory) {
    process_.CountLoss(static_cast<uint32_t>(LossCause::kNoMemory));
  }
  return outcome != LiveTensors::Outcome::kBusy;
}

void FlightRecorder::CatchUp() noexcept {
  tensors_.LockAll();
  (void)CatchUp(runtime::EventNow());
  tensors_.UnlockAll();
}

template <typename Putter>
bool FlightRecorder::Put(size_t bytes, uint64_t now, Putter put) noexcept {
  if (!log_->EnsureRoom(file_, bytes + kSmallRecord, now,
                        log::ChunkUse::kCheckpoint)) {
    return false;
  }
  if (log_->is_empty()) {
    wire::Encoder start = log_->encoder();
    wire::PutCheckpoint(start, now, runtime::MappedBytes());
    if (!log_->Commit(start)) return false;
  }
  wire::Encoder record = log_->encoder();
  put(record);
  return log_->Commit(record);
}

bool FlightRecorder::WriteAll(uint64_t now) noexcept {
  // A checkpoint of nothing is one too.
  bool ok = Put(0, now, [](wire::Encoder&) {});
  tensors_.ForEach([&](const LiveTensors::Tensor& tensor) {
    const wire::LiveTensorFields fields{.age = now - std::min(now, tensor.time),
                                        .thread = tensor.thread,
                                        .stack = tensor.stack,
                                        .address = tensor.key,
                                        .size = tensor.size,
                                        .device = tensor.device};
    ok = ok && Put(wire::kMaxTupleBytes, now, [&fields](wire::Encoder& out) {
           wire::PutLiveTensor(out, fields);
         });
  });
  ok = ok && events_.ForEach(now, [this, now](const wire::DeviceEventFields& e,
                                              uint32_t thread) {
    return Put(wire::kMaxLiveEventBytes, now,
               [&](wire::Encoder& out) { wire::PutLiveEvent(out, thread, e); });
  });
  return ok && WriteDevices(now);
}

bool FlightRecorder::WriteDevices(uint64_t now) noexcept {
  using wire::RecordField;
  bool ok = true;
  for (int device = 0; device < LiveEvents::kDevices && ok; ++device) {
    const LiveEvents::Sample sample = events_.SampleOf(device);
    if (!sample.known) continue;
    ok = Put(kSmallRecord, now, [&](wire::Encoder& out) {
      wire::PutMemorySample(out, now, device, sample.free_bytes,
                            sample.total_bytes,
                            static_cast<uint32_t>(SampleReason::kEvent),
                            RecordField::kLiveSample);
    });
  }
  TorchTotals::ForEach(
      [&](uint32_t device, uint64_t allocated, uint64_t reserved) {
        ok = ok && Put(kSmallRecord, now, [&](wire::Encoder& out) {
               wire::PutTorchTotals(out, now, device, allocated, reserved,
                                    RecordField::kLiveTotals);
             });
      });
  return ok;
}

void FlightRecorder::AbandonInChild() noexcept {
  tensors_.Reset();
  events_.Reset();
  pinned_.AbandonInChild();
  if (log_ != nullptr) log_->AbandonInChild();
  // relaxed: a child of fork() has one thread.
  pinned_events_.store(0, std::memory_order_relaxed);
  event_count_.store(0, std::memory_order_relaxed);
  floor_ = 0;
}

}  // namespace dstrace::capture
