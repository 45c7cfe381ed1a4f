// SPDX-License-Identifier: Apache-2.0
//
// Reader and model on arbitrary bytes: no crash, and what was opened can be
// replayed to its end and adds up.
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "analyzer/log/trace_reader.h"
#include "analyzer/model/build_run.h"

namespace {

void Require(bool holds) {
  if (!holds) std::abort();
}

void CheckLedger(const dstrace::model::Ledger& ledger) {
  uint64_t sum = ledger.torch_live + ledger.torch_cached;
  for (const auto& [owner, bytes] : ledger.libraries) sum += bytes;
  Require(sum + static_cast<uint64_t>(ledger.residual) == ledger.device_used);
  Require(ledger.torch_stream_pending <= ledger.torch_cached);
}

void CheckRun(const dstrace::model::Run& run,
              const dstrace::model::BuildOptions& options) {
  for (const auto& device : run.devices) {
    Require(device.timeline.size() <= options.timeline_points);
    for (const auto& snapshot : device.snapshots) {
      CheckLedger(snapshot.ledger);
      for (const auto& holding : snapshot.holdings) {
        Require(holding.stack < run.stacks.stacks.size());
      }
    }
  }
  for (const auto& stack : run.stacks.stacks) {
    for (const uint32_t frame : stack.frames) {
      Require(frame < run.stacks.frames.size());
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const int fd = memfd_create("fuzz", MFD_CLOEXEC);
  static const std::string path = "/proc/self/fd/" + std::to_string(fd);
  Require(ftruncate(fd, 0) == 0);
  Require(pwrite(fd, data, size, 0) == static_cast<ssize_t>(size));
  auto reader = dstrace::log::TraceReader::Open(path);
  if (!reader.ok()) return 0;
  dstrace::model::BuildOptions options;
  options.timeline_points = 16;
  const auto run = dstrace::model::BuildRun(**reader, options);
  Require(run.ok());
  CheckRun(*run, options);
  return 0;
}
