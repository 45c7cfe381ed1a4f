// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_ANALYZER_MODEL_REPLAY_H_
#define DSTRACE_ANALYZER_MODEL_REPLAY_H_

#include <cstdint>

#include "analyzer/model/events.h"
#include "analyzer/model/memory_state.h"

namespace dstrace::model {

// Feeds events into a MemoryState and counts them. The count after an event is
// its place in the replay: two passes over one source agree on it.
//
// `Derived` gets a call after each event has been applied:
//   bool After(uint64_t time_ns, int device);   device may be kUnknownIndex
//   void Before(uint64_t time_ns);   before an event is applied; optional
// and may hide On...() members to see the event first. Not thread-safe.
template <typename Derived>
class StateReplay : public EventVisitor {
 public:
  StateReplay(const Stacks& stacks, int default_device)
      : state_(stacks, default_device) {}

  bool OnTensorAlloc(const TensorAlloc& event) override { return Take(event); }
  bool OnTensorFree(const TensorFree& event) override { return Take(event); }
  bool OnDevice(const DeviceEvent& event) override { return Take(event); }
  bool OnMemorySample(const MemorySample& e) override { return Take(e); }
  bool OnTorchTotals(const TorchTotals& event) override { return Take(event); }
  bool OnStreamEvent(const StreamEvent& event) override {
    self().Before(event.time);
    ++ordinal_;
    state_.Apply(event);
    return self().After(event.time, kUnknownIndex);
  }
  bool OnOutOfMemory(const OutOfMemory& event) override { return Pass(event); }
  bool OnMark(const Mark& event) override { return Pass(event); }
  bool OnCuptiTotals(const CuptiTotals& e) override { return Pass(e); }
  bool OnEnd(const End& event) override { return Pass(event); }

  [[nodiscard]] const MemoryState& state() const { return state_; }
  [[nodiscard]] uint64_t ordinal() const { return ordinal_; }

 protected:
  template <typename Event>
  bool Take(const Event& event) {
    self().Before(event.time);
    ++ordinal_;
    return self().After(event.time, state_.Apply(event));
  }
  template <typename Event>
  bool Pass(const Event& event) {
    self().Before(event.time);
    ++ordinal_;
    return self().After(event.time, kUnknownIndex);
  }
  void Before(uint64_t /*time_ns*/) {}

  MemoryState state_;
  uint64_t ordinal_ = 0;

 private:
  Derived& self() { return static_cast<Derived&>(*this); }
};

}  // namespace dstrace::model

#endif  // DSTRACE_ANALYZER_MODEL_REPLAY_H_
