// SPDX-License-Identifier: Apache-2.0
//
// usage: analyzer_log_fuzz_corpus FOLDER
//
// Writes the traces that the fuzzer starts from.
#include <cstdio>
#include <string>

#include "tests/support/trace_builder.h"

namespace dstrace::testing {
namespace {

// Every kind of record, in two threads, short enough to mutate well.
void Fill(TraceBuilder& trace) {
  const uint32_t torch = trace.NativeStack({"libcudart.so.12", "libc10.so"});
  const uint32_t nccl = trace.NativeStack({"libnccl.so.2"});
  proto::DeviceEvent event;
  for (int kind = 0; kind <= proto::DeviceEvent::Kind_MAX; ++kind) {
    event.set_kind(static_cast<proto::DeviceEvent::Kind>(kind));
    event.set_address(0x100000 * static_cast<uint64_t>(kind / 2 + 1));
    event.set_handle(static_cast<uint64_t>(kind / 2));
    event.set_size(4096);
    event.set_stack(kind % 3 == 0 ? torch : nccl);
    trace.thread(7).Add(trace.At(static_cast<uint64_t>(10 * kind)), event);
  }
  trace.thread(8).Alloc(trace.At(5), torch, 0x1000, 512);
  trace.thread(8).StreamEvent(trace.At(6), 0, 1, 2);
  trace.thread(8).Free(trace.At(7), 0x1000, 512);
  trace.thread(8).StreamEvent(trace.At(8), 1, 1, 2);
  proto::TorchTotals totals;
  totals.set_device(kCuda0);
  totals.set_reserved(4096);
  trace.thread(8).Add(trace.At(9), totals);
  proto::MemorySample sample;
  sample.set_total_bytes(1 << 30);
  sample.set_free_bytes(1 << 20);
  trace.thread(8).Add(trace.At(10), sample);
  trace.thread(8).Add(trace.At(11), proto::OutOfMemory());
  trace.thread(8).Add(trace.At(12), proto::Mark());
  trace.thread(8).Add(trace.At(400), proto::End());
}

}  // namespace
}  // namespace dstrace::testing

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: analyzer_log_fuzz_corpus FOLDER\n");
    return 2;
  }
  const std::string folder = argv[1];
  dstrace::testing::TraceBuilder trace;
  dstrace::testing::Fill(trace);
  dstrace::testing::WriteFile(folder + "/compact", trace.CompactBytes());
  dstrace::testing::WriteFile(folder + "/whole", trace.Bytes());
  return 0;
}
