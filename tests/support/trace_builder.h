// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_TESTS_SUPPORT_TRACE_BUILDER_H_
#define DSTRACE_TESTS_SUPPORT_TRACE_BUILDER_H_

// Makes trace files in the writer's layout without the writer's code: messages
// by libprotobuf, tuples by a second, plain implementation of FORMAT.md.
//
//   TraceBuilder trace;
//   const uint32_t stack = trace.NativeStack({"libc10_cuda.so"});
//   trace.thread(7).Alloc(trace.At(10), stack, 0x1000, 512);
//   trace.WriteTo(path);
//
// Times are absolute (CLOCK_MONOTONIC); At(ns) counts from the header's. Not
// thread-safe. Aborts on misuse.

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "proto/trace.pb.h"

namespace dstrace::testing {

inline constexpr uint32_t kCuda0 = 0x100;  // torch device: CUDA, index 0
inline constexpr uint32_t kCpu = 0x000;

// The records of one thread; opens a new chunk whenever the current is full.
class ThreadBuilder {
 public:
  // Tuples.
  void Alloc(uint64_t time, uint32_t stack, uint64_t address, uint64_t size,
             uint32_t torch_device = kCuda0);
  void Free(uint64_t time, uint64_t address, uint64_t size,
            uint32_t torch_device = kCuda0);
  // A tensor that is not in the payload yet: it follows it. `size` is negative
  // for a free. Its tag is off by `tag_error`.
  void Recent(uint64_t time, uint32_t stack, uint64_t address, int64_t size,
              int tag_error = 0);
  void StreamEvent(uint64_t time, uint64_t kind, uint64_t event,
                   uint64_t stream);

  // Messages; `time` of the message is ignored, the argument counts.
  void Add(uint64_t time, proto::DeviceEvent event);
  void Add(uint64_t time, proto::MemorySample event);
  void Add(uint64_t time, proto::TorchTotals event);
  void Add(uint64_t time, proto::OutOfMemory event);
  void Add(uint64_t time, proto::Mark event);
  void Add(uint64_t time, proto::End event);

  // What has no time: any fields of Records.
  void Define(const proto::Records& records);
  void Raw(std::string_view bytes);

  // Closes the chunk; the next record opens another one.
  void Close();
  // Number of the open chunk's committed bytes.
  [[nodiscard]] size_t committed() const;

 private:
  friend class TraceBuilder;
  struct Chunk;

  ThreadBuilder(class TraceBuilder* trace, uint32_t tid)
      : trace_(trace), tid_(tid) {}

  Chunk& Open(uint64_t time);
  uint64_t Advance(uint64_t time);
  template <typename Message, typename Add>
  void AddTimed(uint64_t time, Message message, Add add);
  std::string Block(uint64_t address, uint64_t size, uint32_t device);
  void Tuple(uint32_t field, const std::string& body);

  class TraceBuilder* trace_;
  uint32_t tid_;
  Chunk* chunk_ = nullptr;
};

class TraceBuilder {
 public:
  static constexpr uint64_t kStart = 1'000'000'000'000;

  // Begins with a header record, unless told otherwise.
  explicit TraceBuilder(bool with_header = true);
  TraceBuilder(const TraceBuilder&) = delete;
  TraceBuilder& operator=(const TraceBuilder&) = delete;
  ~TraceBuilder();

  static uint64_t At(uint64_t ns) { return kStart + ns; }
  static proto::Header DefaultHeader();

  ThreadBuilder& thread(uint32_t tid);

  // 64, as the writer has; older files have 16.
  void set_recent_slots(size_t slots) { recent_slots_ = slots; }

  // Definitions, in the first thread's chunk. Each returns the new id.
  uint32_t String(const std::string& value);
  uint32_t Module(const std::string& path);
  uint32_t NativeFrame(const std::string& module_path,
                       const std::string& symbol = "");
  uint32_t PythonFrame(const std::string& function, const std::string& file,
                       uint32_t line);
  uint32_t Stack(const std::vector<uint32_t>& frames, bool truncated = false);
  // A stack of one native frame per module, innermost first.
  uint32_t NativeStack(const std::vector<std::string>& module_paths);

  // Adds `pages` reserved pages after the chunks opened so far.
  void Reserve(size_t pages);

  // Chunks as the writer lays them out: 65 536 bytes each.
  [[nodiscard]] std::string Bytes() const;
  // Chunks no longer than what they hold: valid framing, but not the writer's.
  [[nodiscard]] std::string CompactBytes() const;
  void WriteTo(const std::string& path) const;

 private:
  friend class ThreadBuilder;
  [[nodiscard]] std::string Serialize(bool compact) const;

  // In file order; null stands for a reserved page.
  std::vector<std::unique_ptr<ThreadBuilder::Chunk>> chunks_;
  std::map<uint32_t, ThreadBuilder> threads_;
  std::map<std::string, uint32_t> strings_;
  std::map<std::string, uint32_t> modules_;
  uint32_t frames_ = 0;
  uint32_t stacks_ = 0;
  uint32_t sequence_ = 0;
  size_t recent_slots_ = 64;
};

// Writes `bytes` as a file; aborts when it cannot.
void WriteFile(const std::string& path, std::string_view bytes);

}  // namespace dstrace::testing

#endif  // DSTRACE_TESTS_SUPPORT_TRACE_BUILDER_H_
