// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_ANALYZER_MODEL_TOTALS_PASS_H_
#define DSTRACE_ANALYZER_MODEL_TOTALS_PASS_H_

// The first replay: everything of a Run but the snapshots, and the places in
// the replay at which the second one takes them. Not thread-safe.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "analyzer/model/build_run.h"
#include "analyzer/model/cupti_check.h"
#include "analyzer/model/replay.h"

namespace dstrace::model {

class TotalsPass : public StateReplay<TotalsPass> {
 public:
  // An instant: after the event with this number, 0 for before all.
  struct Place {
    uint64_t ordinal = 0;
    uint64_t time_ns = 0;
  };
  struct DeviceTrack {
    explicit DeviceTrack(Timeline made) : timeline(std::move(made)) {}

    Timeline timeline;
    Place peak;
    uint64_t peak_used = 0;
    uint64_t peak_live = 0;
    absl::flat_hash_map<StackId, Growth> growth;
  };

  TotalsPass(const TraceFacts& facts, int default_device,
             const BuildOptions& options);

  bool OnDevice(const DeviceEvent& event) override;
  bool OnOutOfMemory(const OutOfMemory& event) override;
  bool OnMark(const Mark& event) override;
  bool OnCuptiTotals(const CuptiTotals& event) override;
  bool After(uint64_t time_ns, int device);

  // Call after the replay.
  void Finish() { state_.Finish(); }

  // By device index.
  [[nodiscard]] std::map<int, DeviceTrack>& devices() { return devices_; }
  [[nodiscard]] std::vector<Failure>& failures() { return failures_; }
  [[nodiscard]] std::vector<MarkPoint>& marks() { return marks_; }
  [[nodiscard]] const CuptiCheck& cupti() const { return cupti_.check(); }
  // Where Options::at is; nullopt: the mark is not in the trace.
  [[nodiscard]] const std::optional<Place>& requested() const {
    return requested_;
  }
  // Kept short of all: see kMaxFailures, kMaxMarks.
  [[nodiscard]] uint64_t dropped_failures() const { return dropped_failures_; }
  [[nodiscard]] uint64_t dropped_marks() const { return dropped_marks_; }

  static constexpr size_t kMaxFailures = 1000;
  static constexpr size_t kMaxMarks = 100000;

 private:
  DeviceTrack& Track(int device);
  void AddGrowth(const DeviceEvent& event);
  void AddFailure(Failure failure);
  void FillTorch(int device, Failure* failure) const;

  const BuildOptions& options_;
  const uint64_t duration_ns_;
  const uint64_t history_start_ns_;
  std::map<int, DeviceTrack> devices_;
  std::vector<DeviceTrack*> tracks_;  // by index + 1; a fast way to `devices_`
  std::vector<Failure> failures_;
  std::vector<MarkPoint> marks_;
  std::optional<Place> requested_;
  CuptiCounter cupti_;
  uint64_t dropped_failures_ = 0;
  uint64_t dropped_marks_ = 0;
};

}  // namespace dstrace::model

#endif  // DSTRACE_ANALYZER_MODEL_TOTALS_PASS_H_
