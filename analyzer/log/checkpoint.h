// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_ANALYZER_LOG_CHECKPOINT_H_
#define DSTRACE_ANALYZER_LOG_CHECKPOINT_H_

// What a file with a limit says was live when its history starts.
//
// Such a file holds several checkpoints; the one that History names counts.
// History is in the first chunk, before any checkpoint. Not thread-safe.

#include <cstdint>
#include <span>
#include <variant>
#include <vector>

#include "analyzer/log/chunk_decoder.h"
#include "analyzer/model/events.h"

namespace dstrace::log {

// Events that lead to the state at the start of the history, by time.
using LiveEvents =
    std::vector<std::variant<model::TensorAlloc, model::DeviceEvent,
                             model::MemorySample, model::TorchTotals>>;

class Checkpoint {
 public:
  // Whether the record is of this class.
  static bool Takes(Record record) {
    return record >= Record::kCheckpoint && record <= Record::kHistory;
  }

  void BeginChunk() { counts_ = false; }
  // False: malformed.
  bool OnRecord(Record record, std::span<const uint8_t> bytes);

  // CLOCK_MONOTONIC; 0: the file holds everything.
  [[nodiscard]] uint64_t history_start() const { return start_; }
  [[nodiscard]] uint64_t limit_bytes() const { return limit_; }
  [[nodiscard]] uint64_t tracer_bytes() const { return tracer_bytes_; }

  // Takes what was collected. Stack ids from `stack_count` on become 0, times
  // are relative to `start_time`.
  LiveEvents Take(const StringTable& strings, uint32_t stack_count,
                  uint64_t start_time);

 private:
  struct Device {
    model::DeviceEvent event;
    uint32_t api = 0;
    uint32_t label = 0;
  };

  bool AddHistory(std::span<const uint8_t> bytes);
  bool AddStart(std::span<const uint8_t> bytes);
  bool AddTensor(std::span<const uint8_t> bytes);
  bool AddDevice(std::span<const uint8_t> bytes);
  bool AddSample(std::span<const uint8_t> bytes);
  bool AddTotals(std::span<const uint8_t> bytes);

  uint64_t start_ = 0;
  uint64_t limit_ = 0;
  uint64_t tracer_bytes_ = 0;
  bool counts_ = false;  // the records at hand are of the checkpoint that does
  std::vector<model::TensorAlloc> tensors_;
  std::vector<Device> devices_;
  std::vector<model::MemorySample> samples_;
  std::vector<model::TorchTotals> totals_;
};

}  // namespace dstrace::log

#endif  // DSTRACE_ANALYZER_LOG_CHECKPOINT_H_
