// SPDX-License-Identifier: Apache-2.0
#include "analyzer/report/folded.h"

#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "analyzer/report/format.h"

namespace dstrace::report {
namespace {

using Frame = FoldedStack::Frame;
using Kind = FoldedStack::Kind;

class Collector {
 public:
  Collector(View& view, const FoldedOptions& options)
      : view_(view), options_(options) {}

  void Device(const model::Device& device) {
    const model::Snapshot* snapshot = FindSnapshot(device, options_.at);
    roots_.clear();
    if (!options_.root.empty()) roots_.push_back({options_.root, Kind::kGroup});
    roots_.push_back({DeviceName(view_.run(), device.index), Kind::kGroup});
    if (options_.reserved) {
      Reserved(device);
    } else if (snapshot != nullptr) {
      Held(device, *snapshot);
    }
  }

  std::vector<FoldedStack> Take() { return std::move(out_); }

 private:
  void Reserved(const model::Device& device) {
    for (const model::Growth& growth : device.growth) {
      if (growth.owner == "torch") {
        Add("torch, reserved", growth.stack, growth.live_at_peak);
      }
    }
  }

  void Held(const model::Device& device, const model::Snapshot& snapshot) {
    const bool tensors = TensorsSeen(device);
    for (const model::Holding& holding : snapshot.holdings) {
      if (holding.layer == model::Layer::kTensor) {
        Add("torch, tensors", holding.stack, holding.bytes);
      } else if (holding.layer == model::Layer::kDevice &&
                 (holding.owner != "torch" || !tensors)) {
        Add(OwnerName(holding.owner), holding.stack, holding.bytes);
      } else if (holding.layer == model::Layer::kCode) {
        Add("CUDA code, local memory, streams", holding.stack, holding.bytes);
      } else if (holding.layer == model::Layer::kManagedOnDevice) {
        Add("managed memory on the device", holding.stack, holding.bytes);
      }
    }
    const model::Ledger& ledger = snapshot.ledger;
    if (tensors || ledger.torch_live > 0) {
      AddGroup("torch, cached (no tensor uses it)", ledger.torch_cached);
    }
    AddGroup("freed, open in another process", ledger.held_elsewhere);
    const int64_t named = model::NamedResidual(ledger);
    if (ledger.residual > named) {
      AddGroup("CUDA context and others",
               static_cast<uint64_t>(ledger.residual - named));
    }
  }

  void AddGroup(const std::string& name, uint64_t bytes) {
    if (bytes == 0) return;
    FoldedStack stack{roots_, bytes};
    stack.frames.push_back({name, Kind::kGroup});
    out_.push_back(std::move(stack));
  }

  void Add(const std::string& group, model::StackId id, uint64_t bytes) {
    if (bytes == 0) return;
    FoldedStack stack{roots_, bytes};
    stack.frames.push_back({group, Kind::kGroup});
    const auto& stacks = view_.run().stacks.stacks;
    if (id == 0 || id >= stacks.size() || stacks[id].frames.empty()) {
      stack.frames.push_back({"(no stack was taken)", Kind::kGroup});
    } else {
      Frames(stacks[id], &stack);
    }
    out_.push_back(std::move(stack));
  }

  // Native frames without a name stand as their library, once, and not at all
  // beside a named one of it: addresses would differ from run to run.
  void Frames(const model::Stack& from, FoldedStack* to) {
    std::string library;  // of the frame before, if native
    for (auto it = from.frames.rbegin(); it != from.frames.rend(); ++it) {
      const model::FrameText& frame = view_.frames()[*it];
      const bool unnamed = !frame.python && frame.function.empty();
      if (unnamed && !frame.module.empty() && frame.module == library) continue;
      library = frame.module;
      const Kind kind = !frame.python           ? Kind::kNative
                        : view_.IsUserCode(*it) ? Kind::kUser
                                                : Kind::kLibrary;
      to->frames.push_back({unnamed && !frame.module.empty()
                                ? absl::StrCat("[", frame.module, "]")
                                : frame.Label(),
                            kind});
    }
  }

  View& view_;
  const FoldedOptions& options_;
  std::vector<Frame> roots_;
  std::vector<FoldedStack> out_;
};

std::string Line(const FoldedStack& stack) {
  std::string line;
  for (const Frame& frame : stack.frames) {
    if (!line.empty()) line += ';';
    std::string name = Printable(frame.name);
    std::replace(name.begin(), name.end(), ';', ',');
    line += name;
  }
  return line;
}

}  // namespace

std::vector<FoldedStack> FoldedStacks(View& view,
                                      const FoldedOptions& options) {
  Collector collector(view, options);
  for (const model::Device& device : view.run().devices) {
    if (options.device.has_value() ? *options.device == device.index
                                   : device.index >= 0) {
      collector.Device(device);
    }
  }
  return collector.Take();
}

std::string Folded(const std::vector<FoldedStack>& stacks) {
  std::map<std::string, uint64_t> lines;  // the same stack may come twice
  for (const FoldedStack& stack : stacks) lines[Line(stack)] += stack.bytes;
  std::string out;
  for (const auto& [line, bytes] : lines) {
    absl::StrAppend(&out, line, " ", bytes, "\n");
  }
  return out;
}

}  // namespace dstrace::report
