// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_TESTS_HOOKS_FAKE_RECORDER_H_
#define DSTRACE_TESTS_HOOKS_FAKE_RECORDER_H_

// Stands in for preload/capture at link time: keeps what the hooks recorded.
//
// Thread-safety: thread-safe. References are valid until Clear().

#include <cstdint>
#include <deque>
#include <string>

#include "preload/capture/recorder.h"

namespace dstrace::fakes {

struct Sample {
  int device;
  uint64_t free_bytes;
  uint64_t total_bytes;
  capture::SampleReason reason;
};

struct Tensor {
  uint64_t address;
  int64_t size;
  uint64_t allocated;
  uint64_t reserved;
  capture::TorchDevice device;
};

struct StreamEvent {
  capture::StreamEventKind kind;
  uint64_t event;
  uint64_t stream;
};

struct TorchOutOfMemory {
  uint64_t size;
  uint64_t allocated;
  uint64_t reserved;
};

struct Gpu {
  int index;
  std::string name;
  std::string uuid;
  uint64_t total_bytes;
};

struct Property {
  std::string name;
  std::string value;
};

struct End {
  capture::EndKind kind;
  int status;
};

struct Loss {
  capture::LossCause cause;
  std::string detail;
};

struct Mark {
  capture::MarkKind kind;
  std::string name;
  std::string domain;
};

struct Recording {
  std::deque<capture::DeviceEvent> events;
  std::deque<Sample> samples;
  std::deque<Tensor> tensors;
  std::deque<StreamEvent> stream_events;
  std::deque<TorchOutOfMemory> out_of_memory;
  std::deque<Gpu> gpus;
  std::deque<Property> properties;
  std::deque<End> ends;
  std::deque<Loss> losses;
  std::deque<Mark> marks;
  std::deque<capture::CuptiTotals> cupti;
  int module_changes = 0;
  bool is_recording = true;  // what capture::IsRecording() says
};

}  // namespace dstrace::fakes

// What was recorded so far. Exported by the library under test.
extern "C" dstrace::fakes::Recording& FakeRecorderGet() noexcept;
// Forgets events, samples and the rest, but not GPUs and properties, which are
// recorded once per process.
extern "C" void FakeRecorderClear() noexcept;

#endif  // DSTRACE_TESTS_HOOKS_FAKE_RECORDER_H_
