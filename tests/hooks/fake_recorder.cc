// SPDX-License-Identifier: Apache-2.0
#include "tests/hooks/fake_recorder.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <mutex>

#include "preload/hooks/export.h"
#include "preload/hooks/hooks.h"
#include "preload/runtime/clock.h"

namespace dstrace::fakes {
namespace {

std::mutex& Lock() {
  static std::mutex& mutex = *new std::mutex;
  return mutex;
}

Recording& Get() {
  static Recording& recording = *new Recording;
  return recording;
}

template <class T>
void Add(std::deque<T>& list, T item) {
  const std::lock_guard lock(Lock());
  list.push_back(std::move(item));
}

// Ends happen in processes that leave no memory behind: FAKE_RECORDER_LOG
// names a file which gets a line for each.
void LogEnd(capture::EndKind kind, int status) {
  const char* path = std::getenv("FAKE_RECORDER_LOG");
  if (path == nullptr) return;
  const int file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (file < 0) return;
  dprintf(file, "end %d %d\n", static_cast<int>(kind), status);
  close(file);
}

__attribute__((constructor)) void OnLoad() { hooks::AdoptProcess(); }

}  // namespace
}  // namespace dstrace::fakes

extern "C" {

DSTRACE_EXPORT dstrace::fakes::Recording& FakeRecorderGet() noexcept {
  return dstrace::fakes::Get();
}

DSTRACE_EXPORT void FakeRecorderClear() noexcept {
  const std::lock_guard lock(dstrace::fakes::Lock());
  dstrace::fakes::Recording& recording = dstrace::fakes::Get();
  recording.events.clear();
  recording.samples.clear();
  recording.tensors.clear();
  recording.stream_events.clear();
  recording.out_of_memory.clear();
  recording.ends.clear();
  recording.losses.clear();
  recording.marks.clear();
  recording.cupti.clear();
  recording.module_changes = 0;
}

}  // extern "C"

namespace dstrace::capture {

using fakes::Add;
using fakes::Get;

uint64_t Now() noexcept { return runtime::MonotonicNow(); }

void RecordDevice(const DeviceEvent& event) noexcept {
  DeviceEvent copy = event;
  if (copy.time == 0) copy.time = Now();
  Add(Get().events, copy);
}
void RecordMemorySample(int device, uint64_t free_bytes, uint64_t total_bytes,
                        SampleReason reason) noexcept {
  Add(Get().samples, {device, free_bytes, total_bytes, reason});
}
void RecordTensor(const void*, uint64_t address, int64_t size,
                  uint64_t allocated, uint64_t reserved,
                  TorchDevice device) noexcept {
  Add(Get().tensors, {address, size, allocated, reserved, device});
}
void RecordTorchOutOfMemory(uint64_t size, uint64_t allocated,
                            uint64_t reserved, TorchDevice) noexcept {
  Add(Get().out_of_memory, {size, allocated, reserved});
}
void RecordStreamEvent(StreamEventKind kind, uint64_t event,
                       uint64_t stream) noexcept {
  Add(Get().stream_events, {kind, event, stream});
}
void RecordGpu(int index, std::string_view name, std::string_view uuid,
               uint64_t total_bytes) noexcept {
  Add(Get().gpus, {index, std::string(name), std::string(uuid), total_bytes});
}
void RecordProperty(std::string_view name, std::string_view value) noexcept {
  Add(Get().properties, {std::string(name), std::string(value)});
}
void CountLoss(LossCause cause, std::string_view detail) noexcept {
  Add(Get().losses, {cause, std::string(detail)});
}
void ModulesChanged() noexcept {
  const std::lock_guard lock(fakes::Lock());
  ++Get().module_changes;
}
void RecordEnd(EndKind kind, int status) noexcept {
  Add(Get().ends, {kind, status});
  fakes::LogEnd(kind, status);
}
void RecordMark(MarkKind kind, std::string_view name,
                std::string_view domain) noexcept {
  Add(Get().marks, {kind, std::string(name), std::string(domain)});
}
void RecordCupti(const CuptiTotals& totals) noexcept {
  Add(Get().cupti, totals);
}
bool IsRecording() noexcept { return Get().is_recording; }

}  // namespace dstrace::capture
