// SPDX-License-Identifier: Apache-2.0
//
// What the Python tests load with ctypes: captures the calling thread's stack
// and returns it as JSON, one object a line, innermost first.

#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>
#include <vector>

#include "preload/stacks/eval_ranges.h"
#include "preload/stacks/merge.h"
#include "preload/stacks/native.h"
#include "preload/stacks/python.h"
#include "preload/stacks/python_chain.h"
#include "preload/stacks/quick_python.h"
#include "preload/stacks/symbol.h"

#define PROBE_EXPORT extern "C" __attribute__((visibility("default")))

namespace {

using dstrace::stacks::Frame;
using dstrace::stacks::PyCodeInfo;
using dstrace::stacks::PyFrame;

constexpr int kMaxFrames = 4096;

struct Buffers {
  void* pcs[kMaxFrames];
  PyFrame python[kMaxFrames];
  Frame frames[2 * kMaxFrames];
};

// Too large for a thread's stack, and static TLS is scarce in an opened
// library.
std::unique_ptr<Buffers> NewBuffers() { return std::make_unique<Buffers>(); }

class JsonWriter {
 public:
  JsonWriter(char* out, int size)
      : out_(out), size_(static_cast<size_t>(size)) {
    out_[0] = '\0';
  }

  __attribute__((format(printf, 2, 3))) void Print(const char* format, ...) {
    va_list arguments;
    va_start(arguments, format);
    const int length =
        vsnprintf(out_ + used_, size_ - used_, format, arguments);
    va_end(arguments);
    used_ += static_cast<size_t>(length);
    if (used_ >= size_) used_ = size_ - 1;
  }

  void Text(const char* key, const char* text) {
    Print("\"%s\": \"", key);
    for (; *text != '\0'; ++text) {
      const auto byte = static_cast<unsigned char>(*text);
      if (byte == '"' || byte == '\\') {
        Print("\\%c", byte);
      } else if (byte < 0x20) {
        Print("\\u%04x", byte);
      } else {
        Print("%c", byte);
      }
    }
    Print("\"");
  }

 private:
  char* out_;
  size_t size_;
  size_t used_ = 0;
};

// Zero to begin with, as the recorder's are.
dstrace::stacks::PythonChain& ThisThreadsChain() {
  thread_local std::unique_ptr<dstrace::stacks::PythonChain> chain(
      new dstrace::stacks::PythonChain());
  return *chain;
}

// Holds the chains of all threads against full readings: the same frames, one
// key for one stack and one stack for one key.
class ChainCheck {
 public:
  void Check(const PyFrame* frames, int count, int max, bool truncated) {
    auto& chain = ThisThreadsChain();
    const auto key = chain.Take();
    const int read = chain.links_read();
    std::vector<PyFrame> taken(static_cast<size_t>(max));
    bool cut = false;
    taken.resize(static_cast<size_t>(chain.Frames(taken.data(), max, &cut)));
    // A chain may be cut where a full reading is not, never the other way.
    if (cut && !truncated) return;
    const Stack whole = StackOf(frames, static_cast<size_t>(count));
    const Stack own = StackOf(taken.data(), taken.size());
    // Key and fingerprints know a file name by its hash, once there is one.
    // Without the GIL it may have come between them: once for each name.
    if (chain.Take() != key) return Check(frames, count, max, truncated);
    const std::lock_guard lock(mutex_);
    if (own != whole || cut != truncated) ++errors_;
    if (cut) return;
    const auto by_key =
        by_key_.emplace(std::make_pair(key.low, key.high), own).first;
    const auto by_stack =
        by_stack_.emplace(own, std::make_pair(key.low, key.high)).first;
    if (by_key->second != own) ++errors_;
    if (by_stack->second != std::make_pair(key.low, key.high)) ++errors_;
    ++checks_;
    kept_ += count - read > 0 ? 1 : 0;
  }

  int errors() const { return errors_; }
  int checks() const { return checks_; }
  int kept() const { return kept_; }

 private:
  using Stack = std::vector<std::tuple<const void*, uint32_t, bool, uint64_t>>;
  static Stack StackOf(const PyFrame* frames, size_t count) {
    Stack stack;
    for (size_t i = 0; i < count; ++i) {
      stack.emplace_back(frames[i].code, frames[i].lasti, frames[i].entry,
                         dstrace::stacks::CodeFingerprint(frames[i].code) ^
                             frames[i].empty_loops);
    }
    return stack;
  }

  std::mutex mutex_;
  std::map<std::pair<uint64_t, uint64_t>, Stack> by_key_;
  std::map<Stack, std::pair<uint64_t, uint64_t>> by_stack_;
  int errors_ = 0;
  int checks_ = 0;
  int kept_ = 0;
};

ChainCheck& TheChainCheck() {
  static ChainCheck& check = *new ChainCheck;
  return check;
}

void PrintPython(const PyFrame& frame, JsonWriter* json) {
  PyCodeInfo info;
  const bool known = dstrace::stacks::DescribeFrame(frame, &info);
  json->Print("{\"kind\": \"python\", \"known\": %s, ",
              known ? "true" : "false");
  json->Text("name", info.name);
  json->Print(", ");
  json->Text("file", info.file);
  json->Print(
      ", \"line\": %d, \"first_line\": %d, \"lasti\": %u, \"print\": "
      "\"%llx\"}\n",
      info.line, info.first_line, frame.lasti,
      static_cast<unsigned long long>(
          dstrace::stacks::CodeFingerprint(frame.code)));
}

void PrintNative(uintptr_t pc, JsonWriter* json) {
  dstrace::stacks::SymbolInfo info;
  const bool known = dstrace::stacks::DescribeNative(pc - 1, &info);
  json->Print("{\"kind\": \"native\", ");
  json->Text("name", known ? info.name : "");
  json->Print(", ");
  json->Text("module", known ? info.module.path : "");
  json->Print("}\n");
}

int CountLoops(void* const* pcs, int count) {
  const auto* code = dstrace::stacks::FindInterpreterCode();
  if (code == nullptr) return 0;
  int loops = 0;
  for (int i = 0; i < count; ++i) {
    loops += IsEvaluationLoop(*code, reinterpret_cast<uintptr_t>(pcs[i]) - 1)
                 ? 1
                 : 0;
  }
  return loops;
}

int CountRuns(const PyFrame* frames, int count) {
  int runs = 0;
  for (int i = 0; i < count; ++i)
    runs += (frames[i].entry ? 1 : 0) + frames[i].empty_loops;
  return runs;
}

}  // namespace

struct ProbeResult {
  int native;
  int python;
  int merged;
  int truncated;
  int loops;  // C evaluation loops on the native stack
  int runs;   // runs of Python frames
};

// The merged stack of at most `max_python` Python frames.
PROBE_EXPORT int probe_capture(char* out, int size, int max_python,
                               ProbeResult* result) {
  const auto buffers = NewBuffers();
  bool truncated = false;
  if (max_python > kMaxFrames) max_python = kMaxFrames;
  const int native = dstrace::stacks::CaptureNative(buffers->pcs, kMaxFrames);
  const int python =
      dstrace::stacks::CapturePython(buffers->python, max_python, &truncated);
  TheChainCheck().Check(buffers->python, python, max_python, truncated);
  const int merged =
      dstrace::stacks::Merge(buffers->pcs, native, buffers->python, python,
                             buffers->frames, 2 * kMaxFrames);
  *result = {native,
             python,
             merged,
             truncated ? 1 : 0,
             CountLoops(buffers->pcs, native),
             CountRuns(buffers->python, python)};
  JsonWriter json(out, size);
  for (int i = 0; i < merged; ++i) {
    const Frame& frame = buffers->frames[i];
    if (frame.kind == Frame::Kind::kPython) {
      PrintPython({reinterpret_cast<const void*>(frame.pc_or_code), frame.lasti,
                   false, 0},
                  &json);
    } else {
      PrintNative(frame.pc_or_code, &json);
    }
  }
  return merged;
}

// Python frames behind the caller's address, without unwinding.
PROBE_EXPORT int probe_capture_python_only(char* out, int size) {
  const auto buffers = NewBuffers();
  const int python =
      dstrace::stacks::CapturePython(buffers->python, kMaxFrames, nullptr);
  const int merged = dstrace::stacks::MergePythonOnly(
      __builtin_return_address(0), buffers->python, python, buffers->frames,
      2 * kMaxFrames);
  JsonWriter json(out, size);
  for (int i = 0; i < merged; ++i) {
    const Frame& frame = buffers->frames[i];
    if (frame.kind == Frame::Kind::kPython) {
      PrintPython({reinterpret_cast<const void*>(frame.pc_or_code), frame.lasti,
                   false, 0},
                  &json);
    } else {
      PrintNative(frame.pc_or_code, &json);
    }
  }
  return merged;
}

// One event of a program: only the chain, held against a full reading.
PROBE_EXPORT void probe_chain() {
  constexpr int kMax = 256;
  PyFrame frames[kMax];
  bool truncated = false;
  const int python = dstrace::stacks::CapturePython(frames, kMax, &truncated);
  TheChainCheck().Check(frames, python, kMax, truncated);
}
// 1: the quick way gives the frame that the call gives; 0: another; -1: not in
// use.
PROBE_EXPORT int probe_quick_frame() {
  using namespace dstrace::stacks;
  const PythonRuntime* const python = FindPython();
  uintptr_t frame = 0;
  if (python == nullptr || !QuickTopFrame(&frame)) return -1;
  return frame == ThisThreadsFrame(*python);
}
PROBE_EXPORT int probe_chain_errors() { return TheChainCheck().errors(); }
PROBE_EXPORT int probe_chain_checks() { return TheChainCheck().checks(); }
PROBE_EXPORT int probe_chain_kept() { return TheChainCheck().kept(); }
PROBE_EXPORT int probe_chain_links_read() {
  static_cast<void>(ThisThreadsChain().Take());
  return ThisThreadsChain().links_read();
}

PROBE_EXPORT int probe_status() {
  return static_cast<int>(dstrace::stacks::PythonStatus());
}
PROBE_EXPORT unsigned probe_version() {
  return dstrace::stacks::PythonVersionHex();
}
PROBE_EXPORT void probe_modules_changed() { dstrace::stacks::ModulesChanged(); }
PROBE_EXPORT void probe_warm_up() { dstrace::stacks::WarmUp(); }

// A native frame of another library between two Python frames.
PROBE_EXPORT int probe_call(int (*callback)(int), int argument) {
  return callback(argument) + 1;
}

// Fingerprint of the innermost Python frame's code.
PROBE_EXPORT unsigned long long probe_fingerprint(unsigned long long* code) {
  PyFrame frame;
  if (dstrace::stacks::CapturePython(&frame, 1, nullptr) != 1) return 0;
  *code = reinterpret_cast<uintptr_t>(frame.code);
  return dstrace::stacks::CodeFingerprint(frame.code);
}

// Nanoseconds are the caller's business: runs `count` captures of everything.
// Returns how many found Python, native frames added.
PROBE_EXPORT int probe_repeat(int count, int with_native) {
  const auto buffers = NewBuffers();
  int frames = 0;
  for (int i = 0; i < count; ++i) {
    if (with_native != 0)
      frames += dstrace::stacks::CaptureNative(buffers->pcs, 128);
    frames += ThisThreadsChain().Take() == dstrace::stacks::PythonChain::Key{}
                  ? 0
                  : 1;
  }
  return frames;
}
