// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_TOOLS_EVENT_TEXT_H_
#define DSTRACE_TOOLS_EVENT_TEXT_H_

// Events as lines of text, "time thread what ...": for people and for tests.
// Times are nanoseconds since the start of the trace. Not thread-safe.

#include <string>
#include <utility>

#include "absl/strings/str_format.h"
#include "analyzer/model/events.h"

namespace dstrace::tools {

// Calls `Line(std::string)` of `Derived` with each event; false stops.
template <typename Derived>
class EventText : public model::EventVisitor {
 public:
  bool OnTensorAlloc(const model::TensorAlloc& e) override {
    return Keep(absl::StrFormat("%d %d alloc %x+%d device %x stack %d", e.time,
                                e.thread, e.address, e.size, e.torch_device,
                                e.stack));
  }
  bool OnTensorFree(const model::TensorFree& e) override {
    return Keep(absl::StrFormat("%d %d free %x+%d device %x", e.time, e.thread,
                                e.address, e.size, e.torch_device));
  }
  bool OnDevice(const model::DeviceEvent& e) override {
    return Keep(absl::StrFormat(
        "%d %d device-event kind %d api %s label %s %x+%d device %d handle %x "
        "stream %x pool %x offset %d flags %d result %d free %d total %d stack "
        "%d",
        e.time, e.thread, static_cast<int>(e.kind), std::string(e.api),
        std::string(e.label), e.address, e.size, e.device, e.handle, e.stream,
        e.pool, e.offset, e.flags, e.result, e.free_bytes, e.total_bytes,
        e.stack));
  }
  bool OnMemorySample(const model::MemorySample& e) override {
    return Keep(
        absl::StrFormat("%d %d sample device %d free %d total %d "
                        "reason %d",
                        e.time, e.thread, e.device, e.free_bytes, e.total_bytes,
                        static_cast<int>(e.reason)));
  }
  bool OnTorchTotals(const model::TorchTotals& e) override {
    return Keep(absl::StrFormat(
        "%d %d totals device %x allocated %d reserved "
        "%d",
        e.time, e.thread, e.torch_device, e.allocated, e.reserved));
  }
  bool OnOutOfMemory(const model::OutOfMemory& e) override {
    return Keep(
        absl::StrFormat("%d %d oom device %x size %d allocated %d "
                        "reserved %d stack %d",
                        e.time, e.thread, e.torch_device, e.size, e.allocated,
                        e.reserved, e.stack));
  }
  bool OnStreamEvent(const model::StreamEvent& e) override {
    return Keep(absl::StrFormat("%d %d stream-event kind %d event %x stream %x",
                                e.time, e.thread, static_cast<int>(e.kind),
                                e.event, e.stream));
  }
  bool OnMark(const model::Mark& e) override {
    return Keep(absl::StrFormat("%d %d mark kind %d %s/%s", e.time, e.thread,
                                e.kind, std::string(e.domain),
                                std::string(e.name)));
  }
  bool OnCuptiTotals(const model::CuptiTotals& e) override {
    std::string line = absl::StrFormat(
        "%d %d cupti version %d pools %d dropped %d unknown %d", e.time,
        e.thread, e.version, e.pool_operations, e.dropped, e.unknown);
    for (size_t kind = 0; kind < e.kinds.size(); ++kind) {
      const model::CuptiTotals::Kind& sums = e.kinds[kind];
      if (sums.allocations + sums.frees == 0) continue;
      line +=
          absl::StrFormat(" kind %d +%d (%d) -%d (%d)", kind, sums.allocations,
                          sums.allocated_bytes, sums.frees, sums.freed_bytes);
    }
    return Keep(line + (e.stopped ? " stopped" : ""));
  }
  bool OnEnd(const model::End& e) override {
    return Keep(absl::StrFormat("%d %d end kind %d status %d", e.time, e.thread,
                                static_cast<int>(e.kind), e.status));
  }

 private:
  bool Keep(std::string line) {
    return static_cast<Derived*>(this)->Line(std::move(line));
  }
};

}  // namespace dstrace::tools

#endif  // DSTRACE_TOOLS_EVENT_TEXT_H_
