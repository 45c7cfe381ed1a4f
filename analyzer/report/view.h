// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_ANALYZER_REPORT_VIEW_H_
#define DSTRACE_ANALYZER_REPORT_VIEW_H_

// One run as the reports look at it: the model, the words for its frames, and
// rows of memory put together by who asked.

#include <cstdint>
#include <string>
#include <vector>

#include "analyzer/attribution/attributor.h"
#include "analyzer/attribution/rules.h"
#include "analyzer/model/run.h"
#include "analyzer/symbolize/frames.h"

namespace dstrace::report {

// Not thread-safe. `run` and `rules` must outlive it.
class View {
 public:
  View(const model::Run& run, const attribution::RuleSet& rules);
  // The same, with frames that already know more (file and line of native
  // code).
  View(const model::Run& run, const attribution::RuleSet& rules,
       std::vector<model::FrameText> frames);
  View(const View&) = delete;
  View& operator=(const View&) = delete;

  const model::Run& run() const { return run_; }
  const std::vector<model::FrameText>& frames() const { return frames_; }
  const attribution::Story& Tell(model::StackId stack) {
    return attributor_.Tell(stack);
  }
  bool IsUserCode(uint32_t frame) const {
    return attributor_.IsUserCode(frame);
  }

 private:
  const model::Run& run_;
  std::vector<model::FrameText> frames_;
  attribution::Attributor attributor_;
};

// Memory of one asker: stacks with the same line, chain, tag and owner.
struct Row {
  model::Layer layer = model::Layer::kTensor;
  std::string owner;
  const attribution::Story* story = nullptr;  // of the largest stack
  uint64_t bytes = 0;                         // live at the snapshot
  uint64_t count = 0;
  uint64_t total = 0;  // growth rows: asked for over the run
  uint64_t at_end = 0;
  std::vector<model::StackId> stacks;  // largest first
};

// Whether torch told of its tensors. Its cudaMallocAsync backend does not: then
// the driver's allocations are the tensors.
bool TensorsSeen(const model::Device& device);
// What holds device memory, largest first: tensors and the device memory of
// other libraries. torch's own segments are not in it where its tensors are.
std::vector<Row> Holders(View& view, const model::Device& device,
                         const model::Snapshot& snapshot);
// Blocks freed by the program that a stream may still use, by who had asked.
std::vector<Row> PendingHolders(View& view, const model::Snapshot& snapshot);
// Pinned host and managed memory, largest first.
std::vector<Row> HostHolders(View& view, const model::Snapshot& snapshot);
// Who made torch's reserved memory grow, largest at the peak first.
std::vector<Row> TorchGrowth(View& view, const model::Device& device);

// "peak", "end", or the requested third one for any other name; null: not
// there.
const model::Snapshot* FindSnapshot(const model::Device& device,
                                    const std::string& at);

// "NCCL", "cuBLAS", "torch": owners as people write them.
std::string OwnerName(const std::string& owner);
// The label of a rule, or `otherwise`.
std::string LabelOf(const attribution::Story& story,
                    const std::string& otherwise);
// "GPU 0: NVIDIA H200", "host", "GPU 3".
std::string DeviceName(const model::Run& run, int index);
// Total bytes of the device from the ledger or the list of GPUs; 0: unknown.
uint64_t DeviceTotal(const model::Run& run, const model::Device& device);

}  // namespace dstrace::report

#endif  // DSTRACE_ANALYZER_REPORT_VIEW_H_
