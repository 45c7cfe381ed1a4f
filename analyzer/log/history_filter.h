// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_ANALYZER_LOG_HISTORY_FILTER_H_
#define DSTRACE_ANALYZER_LOG_HISTORY_FILTER_H_

// Makes a stream of events out of the chunks of a file with a limit and the
// checkpoint its history starts at:
//
//        what was live at the start,      |  every event
//        at the times it was made         |
//   -----------------------------------start--------------------> time
//
// Allocations, frees and totals before the start are left out: for each that is
// in the file there may be one that is not. Not thread-safe.

#include <cstdint>

#include "analyzer/log/checkpoint.h"
#include "analyzer/model/events.h"

namespace dstrace::log {

class HistoryFilter : public model::EventVisitor {
 public:
  // `start`: of the history, on the events' clock. Both references must outlive
  // this.
  HistoryFilter(const LiveEvents& live, uint64_t start,
                model::EventVisitor& visitor)
      : live_(live), start_(start), visitor_(visitor) {}

  bool OnTensorAlloc(const model::TensorAlloc& event) override;
  bool OnTensorFree(const model::TensorFree& event) override;
  bool OnDevice(const model::DeviceEvent& event) override;
  bool OnMemorySample(const model::MemorySample& event) override;
  bool OnTorchTotals(const model::TorchTotals& event) override;
  bool OnOutOfMemory(const model::OutOfMemory& event) override;
  bool OnStreamEvent(const model::StreamEvent& event) override;
  bool OnMark(const model::Mark& event) override;
  bool OnCuptiTotals(const model::CuptiTotals& event) override;
  bool OnEnd(const model::End& event) override;

  // Delivers what is left of the checkpoint, unless the visitor has stopped.
  void Finish();

 private:
  // Delivers what was made up to `time`. False: the visitor stops.
  bool CatchUp(uint64_t time);

  const LiveEvents& live_;
  const uint64_t start_;
  model::EventVisitor& visitor_;
  size_t next_ = 0;
  bool stopped_ = false;
};

}  // namespace dstrace::log

#endif  // DSTRACE_ANALYZER_LOG_HISTORY_FILTER_H_
