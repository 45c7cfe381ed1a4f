// SPDX-License-Identifier: Apache-2.0
#include "analyzer/report/view.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"

namespace dstrace::report {
namespace {

using attribution::Story;
using model::Layer;

// Puts stacks together by what a reader would call the same asker.
class Grouper {
 public:
  explicit Grouper(View& view) : view_(view) {}

  // Stacks must come largest first, so that the first one names the row.
  Row& Of(Layer layer, const std::string& owner, model::StackId stack) {
    const Story& story = view_.Tell(stack);
    const Key key{layer, owner, story.rule != nullptr ? story.rule->tag : "",
                  story.asked_by, story.via};
    const auto [it, added] = index_.try_emplace(key, rows_.size());
    if (added) {
      rows_.emplace_back();
      rows_.back().layer = layer;
      rows_.back().owner = owner;
      rows_.back().story = &story;
    }
    Row& row = rows_[it->second];
    row.stacks.push_back(stack);
    return row;
  }

  std::vector<Row> Take() {
    std::stable_sort(
        rows_.begin(), rows_.end(), [](const Row& a, const Row& b) {
          return std::tie(a.bytes, a.total) > std::tie(b.bytes, b.total);
        });
    return std::move(rows_);
  }

 private:
  using Key =
      std::tuple<Layer, std::string, std::string, std::string, std::string>;
  View& view_;
  std::map<Key, size_t> index_;
  std::vector<Row> rows_;
};

template <typename Wanted>
std::vector<Row> Group(View& view, const std::vector<model::Holding>& holdings,
                       Wanted wanted) {
  Grouper grouper(view);
  for (const model::Holding& holding : holdings) {
    if (holding.bytes == 0 || !wanted(holding)) continue;
    Row& row = grouper.Of(holding.layer, holding.owner, holding.stack);
    row.bytes += holding.bytes;
    row.count += holding.count;
  }
  return grouper.Take();
}

}  // namespace

View::View(const model::Run& run, const attribution::RuleSet& rules)
    : View(run, rules, symbolize::Describe(run.stacks)) {}

View::View(const model::Run& run, const attribution::RuleSet& rules,
           std::vector<model::FrameText> frames)
    : run_(run),
      frames_(std::move(frames)),
      attributor_(run.stacks, frames_, rules) {}

// The ledger's live bytes do not tell: with the cudaMallocAsync backend they
// are allocations from torch's pool.
bool TensorsSeen(const model::Device& device) {
  const auto holds_tensor = [](const model::Snapshot& snapshot) {
    return std::any_of(
        snapshot.holdings.begin(), snapshot.holdings.end(),
        [](const auto& holding) { return holding.layer == Layer::kTensor; });
  };
  return device.torch_check.reports > 0 ||
         std::any_of(device.snapshots.begin(), device.snapshots.end(),
                     holds_tensor) ||
         std::any_of(device.timeline.begin(), device.timeline.end(),
                     [](const auto& point) { return point.torch_live > 0; });
}

std::vector<Row> Holders(View& view, const model::Device& device,
                         const model::Snapshot& snapshot) {
  const bool segments = !TensorsSeen(device);
  return Group(view, snapshot.holdings, [&](const model::Holding& holding) {
    if (holding.layer != Layer::kDevice) {
      return holding.layer == Layer::kTensor || holding.layer == Layer::kCode ||
             holding.layer == Layer::kManagedOnDevice;
    }
    return segments || holding.owner != "torch";
  });
}

std::vector<Row> PendingHolders(View& view, const model::Snapshot& snapshot) {
  return Group(view, snapshot.stream_pending,
               [](const model::Holding&) { return true; });
}

std::vector<Row> HostHolders(View& view, const model::Snapshot& snapshot) {
  return Group(view, snapshot.holdings, [](const model::Holding& holding) {
    return holding.layer == Layer::kHostPinned ||
           holding.layer == Layer::kManaged;
  });
}

std::vector<Row> TorchGrowth(View& view, const model::Device& device) {
  Grouper grouper(view);
  for (const model::Growth& growth : device.growth) {
    if (growth.owner != "torch") continue;
    Row& row = grouper.Of(Layer::kDevice, growth.owner, growth.stack);
    row.bytes += growth.live_at_peak;
    row.count += growth.count;
    row.total += growth.bytes;
    row.at_end += growth.live_at_end;
  }
  return grouper.Take();
}

const model::Snapshot* FindSnapshot(const model::Device& device,
                                    const std::string& at) {
  for (const model::Snapshot& snapshot : device.snapshots) {
    if (snapshot.name == at) return &snapshot;
  }
  if (at == "peak" || at == "end" || device.snapshots.size() < 3)
    return nullptr;
  return &device.snapshots[2];
}

std::string OwnerName(const std::string& owner) {
  static const std::map<std::string, std::string>* const names =
      new std::map<std::string, std::string>{
          {"nccl", "NCCL"},         {"cublas", "cuBLAS"},
          {"cublasLt", "cuBLASLt"}, {"cudnn", "cuDNN"},
          {"cufft", "cuFFT"},       {"cusolver", "cuSOLVER"},
          {"cusparse", "cuSPARSE"}, {"cudart", "CUDA runtime"},
          {"nvshmem", "NVSHMEM"},   {"cupti", "CUPTI"},
          {"", "unknown owner"}};
  const auto it = names->find(owner);
  return it == names->end() ? owner : it->second;
}

std::string LabelOf(const Story& story, const std::string& otherwise) {
  return story.rule != nullptr ? story.rule->label : otherwise;
}

std::string DeviceName(const model::Run& run, int index) {
  if (index < 0) return "Tensors in host memory";
  for (const model::Gpu& gpu : run.process.gpus) {
    if (gpu.index == index && !gpu.name.empty())
      return absl::StrCat("GPU ", index, ": ", gpu.name);
  }
  return absl::StrCat("GPU ", index);
}

uint64_t DeviceTotal(const model::Run& run, const model::Device& device) {
  for (const model::Snapshot& snapshot : device.snapshots) {
    if (snapshot.ledger.device_total != 0) return snapshot.ledger.device_total;
  }
  for (const model::Gpu& gpu : run.process.gpus) {
    if (gpu.index == device.index) return gpu.total_bytes;
  }
  return 0;
}

}  // namespace dstrace::report
