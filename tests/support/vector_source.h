// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_TESTS_SUPPORT_VECTOR_SOURCE_H_
#define DSTRACE_TESTS_SUPPORT_VECTOR_SOURCE_H_

// An EventSource that is a list: tests of the model need no file.
//
//   VectorSource source;
//   const model::StackId torch = source.Stack({"libc10_cuda.so"});
//   source.Add(model::TensorAlloc{.time = 5, .address = 0x1000, ...});
//
// Events must be added in order of time.

#include <algorithm>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "analyzer/model/events.h"

namespace dstrace::testing {

class VectorSource : public model::EventSource {
 public:
  VectorSource() {
    facts_.stacks.stacks.resize(1);
    facts_.stacks.frames.resize(1);
  }

  // A stack of one native frame per module, innermost first.
  model::StackId Stack(const std::vector<std::string>& modules) {
    model::Stack stack;
    for (const std::string& path : modules) {
      model::Frame frame;
      frame.module = static_cast<int>(facts_.stacks.modules.size());
      facts_.stacks.modules.emplace_back().path = path;
      stack.frames.push_back(
          static_cast<uint32_t>(facts_.stacks.frames.size()));
      facts_.stacks.frames.push_back(frame);
    }
    facts_.stacks.stacks.push_back(stack);
    return static_cast<model::StackId>(facts_.stacks.stacks.size() - 1);
  }

  template <typename Event>
  void Add(const Event& event) {
    facts_.process.duration_ns =
        std::max(facts_.process.duration_ns, event.time);
    ++facts_.event_count;
    events_.push_back(event);
  }

  model::TraceFacts& mutable_facts() { return facts_; }

  [[nodiscard]] const model::TraceFacts& facts() const override {
    return facts_;
  }
  [[nodiscard]] model::TraceFacts ReleaseFacts() override {
    return std::move(facts_);
  }
  absl::Status Replay(model::EventVisitor& visitor) const override {
    for (const auto& event : events_) {
      const bool go_on =
          std::visit([&](const auto& e) { return Deliver(e, visitor); }, event);
      if (!go_on) break;
    }
    return absl::OkStatus();
  }

 private:
  using Visitor = model::EventVisitor;
  static bool Deliver(const model::TensorAlloc& e, Visitor& v) {
    return v.OnTensorAlloc(e);
  }
  static bool Deliver(const model::TensorFree& e, Visitor& v) {
    return v.OnTensorFree(e);
  }
  static bool Deliver(const model::DeviceEvent& e, Visitor& v) {
    return v.OnDevice(e);
  }
  static bool Deliver(const model::MemorySample& e, Visitor& v) {
    return v.OnMemorySample(e);
  }
  static bool Deliver(const model::TorchTotals& e, Visitor& v) {
    return v.OnTorchTotals(e);
  }
  static bool Deliver(const model::OutOfMemory& e, Visitor& v) {
    return v.OnOutOfMemory(e);
  }
  static bool Deliver(const model::StreamEvent& e, Visitor& v) {
    return v.OnStreamEvent(e);
  }
  static bool Deliver(const model::Mark& e, Visitor& v) { return v.OnMark(e); }
  static bool Deliver(const model::CuptiTotals& e, Visitor& v) {
    return v.OnCuptiTotals(e);
  }
  static bool Deliver(const model::End& e, Visitor& v) { return v.OnEnd(e); }

  model::TraceFacts facts_;
  std::vector<std::variant<
      model::TensorAlloc, model::TensorFree, model::DeviceEvent,
      model::MemorySample, model::TorchTotals, model::OutOfMemory,
      model::StreamEvent, model::Mark, model::CuptiTotals, model::End>>
      events_;
};

}  // namespace dstrace::testing

#endif  // DSTRACE_TESTS_SUPPORT_VECTOR_SOURCE_H_
