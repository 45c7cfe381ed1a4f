// SPDX-License-Identifier: Apache-2.0
//
// torch's segments and the tensors in them, to tell which stack's segments
// stand empty. Not thread-safe. Memory is proportional to what is live.
#ifndef DSTRACE_ANALYZER_DEEPSPEED_SEGMENTS_H_
#define DSTRACE_ANALYZER_DEEPSPEED_SEGMENTS_H_

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "analyzer/model/events.h"

namespace dstrace::deepspeed {

class Segments {
 public:
  // A successful event of torch's own: cudaMalloc, or a mapping of an
  // expandable segment, and their ends. Others change nothing.
  void Apply(const model::DeviceEvent& event);
  void Apply(const model::TensorAlloc& event) {
    tensors_[event.address] = event.size;
  }
  void Apply(const model::TensorFree& event) { tensors_.erase(event.address); }

  // Bytes of segments without a live tensor, by the stack that made them;
  // largest first. A tensor outside every segment counts nowhere.
  [[nodiscard]] std::vector<std::pair<model::StackId, int64_t>> Empty() const;

 private:
  struct Segment {
    uint64_t size = 0;
    model::StackId stack = 0;
  };
  void Unmap(uint64_t address, uint64_t size);

  std::map<uint64_t, Segment> segments_;             // by address
  absl::flat_hash_map<uint64_t, uint64_t> tensors_;  // address to size
};

}  // namespace dstrace::deepspeed

#endif  // DSTRACE_ANALYZER_DEEPSPEED_SEGMENTS_H_
