// SPDX-License-Identifier: Apache-2.0
//
// usage: dstrace_dump FILE [MAX_EVENTS]
//
// Prints a trace as lines of text: facts, chunks, stacks, events in order.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "analyzer/log/trace_reader.h"
#include "tools/event_text.h"

namespace dstrace::tools {
namespace {

class Printer : public EventText<Printer> {
 public:
  explicit Printer(uint64_t limit) : left_(limit) {}

  bool Line(const std::string& line) {
    std::puts(line.c_str());
    return --left_ > 0;
  }

 private:
  uint64_t left_;
};

void PrintProcess(const model::TraceFacts& facts) {
  const model::Process& process = facts.process;
  std::printf("process %u of %u on %s, dstrace %s, stacks %s\n", process.pid,
              process.parent_pid, process.host.c_str(),
              process.dstrace_version.c_str(), process.stacks_mode.c_str());
  std::printf("command");
  for (const std::string& word : process.command) {
    std::printf(" %s", word.c_str());
  }
  std::printf("\nexecutable %s\n", process.executable.c_str());
  for (const auto& [name, value] : process.environment) {
    std::printf("environment %s=%s\n", name.c_str(), value.c_str());
  }
  for (const auto& [name, value] : process.properties) {
    std::printf("property %s=%s\n", name.c_str(), value.c_str());
  }
  for (const model::Gpu& gpu : process.gpus) {
    std::printf("gpu %d %s %s %llu bytes\n", gpu.index, gpu.name.c_str(),
                gpu.uuid.c_str(),
                static_cast<unsigned long long>(gpu.total_bytes));
  }
  std::printf("duration %llu ns, end kind %d status %d\n",
              static_cast<unsigned long long>(process.duration_ns),
              static_cast<int>(process.end), process.end_status);
}

void PrintRemarks(const model::TraceFacts& facts) {
  for (const model::Loss& loss : facts.losses) {
    std::printf("loss %s %llu %s\n", loss.cause.c_str(),
                static_cast<unsigned long long>(loss.count),
                loss.detail.c_str());
  }
  for (const std::string& note : facts.notes) {
    std::printf("note %s\n", note.c_str());
  }
}

void PrintFrame(const model::Stacks& stacks, const model::Frame& frame) {
  if (frame.kind == model::Frame::Kind::kPython) {
    std::printf("  %s %s:%u\n", frame.name.c_str(), frame.file.c_str(),
                frame.line);
    return;
  }
  const char* const path =
      frame.module < 0
          ? "?"
          : stacks.modules[static_cast<size_t>(frame.module)].path.c_str();
  std::printf("  %#llx %s+%llu %s\n", static_cast<unsigned long long>(frame.pc),
              frame.name.c_str(),
              static_cast<unsigned long long>(frame.name_offset), path);
}

void PrintStacks(const model::Stacks& stacks) {
  for (size_t id = 1; id < stacks.stacks.size(); ++id) {
    const model::Stack& stack = stacks.stacks[id];
    std::printf("stack %zu%s\n", id, stack.truncated ? " truncated" : "");
    for (const uint32_t frame : stack.frames) {
      PrintFrame(stacks, stacks.frames[frame]);
    }
  }
}

int Dump(const char* path, uint64_t limit) {
  const auto reader = log::TraceReader::Open(path);
  if (!reader.ok()) {
    std::fprintf(stderr, "dstrace_dump: %s\n",
                 std::string(reader.status().message()).c_str());
    return 1;
  }
  const model::TraceFacts& facts = (*reader)->facts();
  PrintProcess(facts);
  PrintRemarks(facts);
  for (const log::ChunkInfo& chunk : (*reader)->chunks()) {
    std::printf("chunk %u at byte %llu thread %u committed %u events %llu\n",
                chunk.sequence, static_cast<unsigned long long>(chunk.offset),
                chunk.thread, chunk.committed,
                static_cast<unsigned long long>(chunk.events));
  }
  PrintStacks(facts.stacks);
  Printer printer(limit);
  const absl::Status status = (*reader)->Replay(printer);
  if (status.ok()) return 0;
  std::fprintf(stderr, "dstrace_dump: %s\n",
               std::string(status.message()).c_str());
  return 1;
}

}  // namespace
}  // namespace dstrace::tools

int main(int argc, char** argv) {
  uint64_t limit = std::numeric_limits<uint64_t>::max();
  if (argc < 2 || argc > 3 ||
      (argc == 3 && (!absl::SimpleAtoi(argv[2], &limit) || limit == 0))) {
    std::fprintf(stderr, "usage: dstrace_dump FILE [MAX_EVENTS]\n");
    return 2;
  }
  return dstrace::tools::Dump(argv[1], limit);
}
