// SPDX-License-Identifier: Apache-2.0
#include "preload/stacks/python_runtime.h"

#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>

#include "preload/runtime/guard.h"
#include "preload/stacks/elf_module.h"
#include "preload/stacks/generation.h"
#include "preload/stacks/python.h"
#include "preload/stacks/quick_python.h"

namespace dstrace::stacks {
namespace {

enum class State : uint8_t {
  kSearching,
  kPublishing,
  kFound,
  kChecked,
  kUnsupported
};

// Everything below g_state is written by the one thread that moved it from
// kSearching to kPublishing; its release store of the next state pairs with the
// acquire loads in FindPython.
std::atomic<State> g_state{State::kSearching};
PythonRuntime g_python;

// The remembered "no Python here": looked up again on the process's calls 1, 2,
// 4, ... 64, on each thread's 4096th, and in a new module generation. No count
// that every event of every thread would write: with 16 threads that made an
// event cost six times what it does alone. Relaxed: a lost or double probe does
// no harm.
constexpr uint32_t kFirstCalls = 64;
constexpr uint32_t kProbeInterval = 4096;
std::atomic<uint32_t> g_first_calls{0};
thread_local uint32_t t_calls __attribute__((tls_model("initial-exec"))) = 0;
std::atomic<uint32_t> g_probed_generation{0};

bool ProbeIsDue() noexcept {
  const uint32_t generation =
      g_module_generation.load(std::memory_order_relaxed);
  if (g_probed_generation.load(std::memory_order_relaxed) != generation) {
    g_probed_generation.store(generation, std::memory_order_relaxed);
    return true;
  }
  if (g_first_calls.load(std::memory_order_relaxed) < kFirstCalls) {
    const uint32_t call =
        g_first_calls.fetch_add(1, std::memory_order_relaxed) + 1;
    return (call & (call - 1)) == 0;
  }
  return ++t_calls % kProbeInterval == 0;
}

// "3.10.13 (main, ...)" to a PY_VERSION_HEX without its release level.
uint32_t ParseVersion(const char* text) noexcept {
  uint32_t parts[3] = {0, 0, 0};
  for (uint32_t& part : parts) {
    while (*text >= '0' && *text <= '9')
      part = part * 10 + static_cast<uint32_t>(*text++ - '0');
    if (*text == '.') ++text;
  }
  return (parts[0] << 24) | (parts[1] << 16) | (parts[2] << 8);
}

// Py_Version is a constant from 3.11 on; before, only a function that formats
// the text into a static buffer tells.
uint32_t ReadVersion(const ElfModule& module) noexcept {
  const uintptr_t constant = FindSymbol(module, "Py_Version");
  if (constant != 0)
    return static_cast<uint32_t>(Load<unsigned long>(constant));
  const uintptr_t function = FindSymbol(module, "Py_GetVersion");
  if (function == 0) return 0;
  return ParseVersion(reinterpret_cast<const char* (*)()>(function)());
}

struct Candidate {
  PythonRuntime python;
  bool known_layout;
};

bool OnModule(const ElfModule& module, void* argument) {
  const Elf64_Sym* runtime = FindSymbolEntry(module, "_PyRuntime");
  if (runtime == nullptr) return false;
  PythonRuntime python{};
  python.runtime = module.base + runtime->st_value;
  python.this_thread = reinterpret_cast<void* (*)()>(
      FindSymbol(module, "PyGILState_GetThisThreadState"));
  python.eval_frame = FindSymbol(module, "_PyEval_EvalFrameDefault");
  python.code_type = FindSymbol(module, "PyCode_Type");
  python.text_type = FindSymbol(module, "PyUnicode_Type");
  python.bytes_type = FindSymbol(module, "PyBytes_Type");
  if (python.this_thread == nullptr || python.eval_frame == 0 ||
      python.code_type == 0 || python.text_type == 0 ||
      python.bytes_type == 0) {
    return false;
  }
  python.version_hex = ReadVersion(module);
  auto* candidate = static_cast<Candidate*>(argument);
  const auto layout =
      (python.version_hex >> 24) == 3
          ? LayoutFor(static_cast<int>((python.version_hex >> 16) & 0xff),
                      reinterpret_cast<const void*>(python.runtime),
                      runtime->st_size)
          : std::nullopt;
  candidate->known_layout = layout.has_value();
  if (layout.has_value()) python.layout = *layout;
  candidate->python = python;
  return true;
}

void Publish(const Candidate& candidate) noexcept {
  State expected = State::kSearching;
  if (!g_state.compare_exchange_strong(expected, State::kPublishing,
                                       std::memory_order_relaxed)) {
    return;
  }
  g_python = candidate.python;
  g_state.store(candidate.known_layout ? State::kFound : State::kUnsupported,
                std::memory_order_release);
}

// Loads that fail where a plain one would fault.
class CarefulReader {
 public:
  bool Read(uintptr_t address, void* out, size_t size) noexcept {
    iovec local{out, size};
    iovec remote{reinterpret_cast<void*>(address), size};
    if (process_vm_readv(getpid(), &local, 1, &remote, 1, 0) ==
        static_cast<ssize_t>(size)) {
      return true;
    }
    // A sandbox may forbid the call; the kernel checks a write's buffer too.
    return (errno == ENOSYS || errno == EPERM) &&
           ReadThroughPipe(address, out, size);
  }

  template <typename T>
  bool Read(uintptr_t address, T* out) noexcept {
    return Read(address, out, sizeof(T));
  }

  bool HasType(const PyLayout& layout, uintptr_t object,
               uintptr_t type) noexcept {
    uintptr_t found = 0;
    return object != 0 && object % alignof(void*) == 0 &&
           Read(object + layout.object_type, &found) && found == type;
  }

 private:
  static bool ReadThroughPipe(uintptr_t address, void* out,
                              size_t size) noexcept {
    int ends[2];
    if (pipe(ends) != 0) return false;
    const auto wanted = static_cast<ssize_t>(size);
    const bool ok = write(ends[1], reinterpret_cast<const void*>(address),
                          size) == wanted &&
                    read(ends[0], out, size) == wanted;
    close(ends[0]);
    close(ends[1]);
    return ok;
  }
};

bool TextLooksRight(CarefulReader* reader, const PythonRuntime& python,
                    uintptr_t text) noexcept {
  const PyLayout& layout = python.layout;
  uint32_t state = 0;
  if (!reader->HasType(layout, text, python.text_type)) return false;
  if (!reader->Read(text + layout.text_state, &state)) return false;
  const uint32_t kind = (state >> layout.text_kind_shift) & 7;
  const bool compact = ((state >> (layout.text_kind_shift + 3)) & 1) != 0;
  return compact && (kind == 1 || kind == 2 || kind == 4);
}

bool CodeLooksRight(CarefulReader* reader, const PythonRuntime& python,
                    uintptr_t code) noexcept {
  const PyLayout& layout = python.layout;
  if (!reader->HasType(layout, code, python.code_type)) return false;
  uintptr_t name = 0, file = 0, lines = 0;
  int32_t first_line = -1;
  if (!reader->Read(code + layout.code_name, &name) ||
      !reader->Read(code + layout.code_file, &file) ||
      !reader->Read(code + layout.code_lines, &lines) ||
      !reader->Read(code + layout.code_first_line, &first_line)) {
    return false;
  }
  return first_line >= 0 && TextLooksRight(reader, python, name) &&
         TextLooksRight(reader, python, file) &&
         reader->HasType(layout, lines, python.bytes_type);
}

bool IsShim(CarefulReader* reader, const PyLayout& layout,
            uintptr_t frame) noexcept {
  uint8_t owner = 0;
  return layout.frame_kind == FrameKind::kShim &&
         reader->Read(frame + layout.frame_owner, &owner) &&
         owner >= kFirstShimOwner && owner <= kFirstShimOwner + 2;
}

enum class Verdict { kNothingToCheck, kRight, kWrong };

// Walks the outermost-bound chain of this thread as CapturePython would.
Verdict CheckFrames(const PythonRuntime& python,
                    uintptr_t thread_state) noexcept {
  constexpr int kFramesToCheck = 16;
  const PyLayout& layout = python.layout;
  CarefulReader reader;
  uintptr_t frame = 0;
  if (!reader.Read(thread_state + layout.thread_frame, &frame))
    return Verdict::kWrong;
  if (layout.has_cframe && !reader.Read(frame + layout.cframe_frame, &frame)) {
    return Verdict::kWrong;
  }
  int checked = 0;
  for (int i = 0; i < kFramesToCheck && frame != 0; ++i) {
    if (!IsShim(&reader, layout, frame)) {
      uintptr_t code = 0;
      if (!reader.Read(frame + layout.frame_code, &code))
        return Verdict::kWrong;
      if (!CodeLooksRight(&reader, python, code & ~kReferenceTags))
        return Verdict::kWrong;
      ++checked;
    }
    if (!reader.Read(frame + layout.frame_previous, &frame))
      return Verdict::kWrong;
  }
  return checked > 0 ? Verdict::kRight : Verdict::kNothingToCheck;
}

}  // namespace

namespace {

DSTRACE_COLD const PythonRuntime* LookForPython() noexcept {
  // acquire: pairs with Publish().
  const State state = g_state.load(std::memory_order_acquire);
  if (state == State::kFound) return &g_python;
  if (state != State::kSearching || !ProbeIsDue()) return nullptr;
  const runtime::KeepErrno keep_errno;
  Candidate candidate{};
  if (!ForEachModule(OnModule, &candidate)) return nullptr;
  Publish(candidate);
  // Where another thread is just publishing the same, the next event finds it.
  return g_state.load(std::memory_order_acquire) == State::kFound ? &g_python
                                                                  : nullptr;
}

}  // namespace

const PythonRuntime* FindPython() noexcept {
  // acquire: pairs with Publish().
  if (__builtin_expect(
          g_state.load(std::memory_order_acquire) == State::kChecked, 1)) {
    return &g_python;
  }
  return LookForPython();
}

bool PythonIsChecked() noexcept {
  // Relaxed: only tells whether to check again; the data came with kFound.
  return g_state.load(std::memory_order_relaxed) == State::kChecked;
}

bool CheckPython(const PythonRuntime& python, uintptr_t thread_state) noexcept {
  const int saved_errno = errno;
  const Verdict verdict = CheckFrames(python, thread_state);
  errno = saved_errno;
  if (verdict == Verdict::kNothingToCheck) return false;
  const State next =
      verdict == Verdict::kRight ? State::kChecked : State::kUnsupported;
  // Only from kFound, so that threads that check at the same time agree.
  State expected = State::kFound;
  if (g_state.compare_exchange_strong(expected, next,
                                      std::memory_order_relaxed) &&
      next == State::kChecked) {
    LearnQuickPython(python);
  }
  return PythonIsChecked();
}

PyStatus PythonStatus() noexcept {
  switch (g_state.load(std::memory_order_relaxed)) {  // a snapshot for people
    case State::kSearching:
    case State::kPublishing:
      return PyStatus::kNoPython;
    case State::kUnsupported:
      return PyStatus::kUnsupported;
    case State::kFound:
    case State::kChecked:
      return PyStatus::kOk;
  }
  return PyStatus::kNoPython;
}

uint32_t PythonVersionHex() noexcept {
  // Acquire pairs with the release in Publish.
  const State state = g_state.load(std::memory_order_acquire);
  return state == State::kSearching || state == State::kPublishing
             ? 0
             : g_python.version_hex;
}

PyImage PythonImage() noexcept {
  const State state =
      g_state.load(std::memory_order_acquire);  // pairs with Publish
  if (state == State::kSearching || state == State::kPublishing)
    return {nullptr, nullptr};
  const auto* eval = reinterpret_cast<const void*>(g_python.eval_frame);
  return {eval, eval};
}

}  // namespace dstrace::stacks
