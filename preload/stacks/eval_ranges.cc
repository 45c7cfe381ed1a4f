// SPDX-License-Identifier: Apache-2.0
#include "preload/stacks/eval_ranges.h"

#include <elf.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>

#include "preload/runtime/fork_gate.h"
#include "preload/stacks/elf_module.h"
#include "preload/stacks/python.h"
#include "preload/stacks/python_runtime.h"

#define UNW_LOCAL_ONLY
#include <libunwind.h>

namespace dstrace::stacks {
namespace {

constexpr char kEvaluationLoop[] = "_PyEval_EvalFrameDefault";

// A file mapped for reading; every access is checked against its size.
class MappedFile {
 public:
  explicit MappedFile(const char* path) noexcept {
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return;
    // Not fstat: it became an export of glibc only in 2.33.
    const off_t size = lseek(fd, 0, SEEK_END);
    if (size > 0) {
      size_ = static_cast<size_t>(size);
      data_ = mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, fd, 0);
      if (data_ == MAP_FAILED) data_ = nullptr;
    }
    close(fd);
  }
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile() {
    if (data_ != nullptr) munmap(data_, size_);
  }

  template <typename T>
  const T* At(uint64_t offset, uint64_t count = 1) const noexcept {
    if (data_ == nullptr || offset > size_ ||
        count > (size_ - offset) / sizeof(T))
      return nullptr;
    if (offset % alignof(T) != 0) return nullptr;
    return reinterpret_cast<const T*>(reinterpret_cast<uintptr_t>(data_) +
                                      offset);
  }

 private:
  void* data_ = nullptr;
  size_t size_ = 0;
};

struct SymbolTable {
  const Elf64_Sym* symbols = nullptr;
  uint64_t count = 0;
  const char* strings = nullptr;
  uint64_t strings_size = 0;

  // Null where the name does not end inside the table.
  const char* Name(const Elf64_Sym& symbol) const noexcept {
    if (symbol.st_name >= strings_size) return nullptr;
    const char* name = strings + symbol.st_name;
    return memchr(name, '\0', strings_size - symbol.st_name) == nullptr
               ? nullptr
               : name;
  }
};

SymbolTable FindSymbolTable(const MappedFile& file) noexcept {
  SymbolTable table;
  const auto* header = file.At<Elf64_Ehdr>(0);
  if (header == nullptr || memcmp(header->e_ident, ELFMAG, SELFMAG) != 0)
    return table;
  const auto* sections = file.At<Elf64_Shdr>(header->e_shoff, header->e_shnum);
  if (sections == nullptr) return table;
  for (unsigned i = 0; i < header->e_shnum; ++i) {
    const Elf64_Shdr& section = sections[i];
    if (section.sh_type != SHT_SYMTAB || section.sh_link >= header->e_shnum)
      continue;
    const Elf64_Shdr& strings = sections[section.sh_link];
    const uint64_t count = section.sh_size / sizeof(Elf64_Sym);
    table.symbols = file.At<Elf64_Sym>(section.sh_offset, count);
    table.strings = file.At<char>(strings.sh_offset, strings.sh_size);
    if (table.symbols == nullptr || table.strings == nullptr)
      return SymbolTable{};
    table.count = count;
    table.strings_size = strings.sh_size;
    return table;
  }
  return table;
}

void AddPart(uintptr_t start, uintptr_t size, InterpreterCode* code) noexcept {
  if (size == 0 || code->part_count == InterpreterCode::kMaxParts) return;
  code->parts[code->part_count++] = {start, start + size};
}

struct Loaded {
  uintptr_t address;
  InterpreterCode code;
  uintptr_t base;
  uintptr_t value;
  char path[512];
};

bool OnModule(const ElfModule& module, void* argument) {
  auto* loaded = static_cast<Loaded*>(argument);
  if (loaded->address < module.start || loaded->address >= module.end)
    return false;
  loaded->code.module = {module.start, module.end};
  loaded->base = module.base;
  const Elf64_Sym* symbol = FindSymbolEntry(module, kEvaluationLoop);
  if (symbol != nullptr) {
    loaded->value = symbol->st_value;
    AddPart(module.base + symbol->st_value, symbol->st_size, &loaded->code);
  }
  const char* path = module.name[0] == '\0' ? "/proc/self/exe" : module.name;
  const size_t length = strnlen(path, sizeof(loaded->path) - 1);
  memcpy(loaded->path, path, length);
  return true;
}

enum class State : uint8_t { kUnknown, kPublishing, kKnown };

// g_code is written by the one thread that moved g_state to kPublishing; its
// release store of kKnown pairs with the acquire loads below.
std::atomic<State> g_state{State::kUnknown};
InterpreterCode g_code;

// Learned parts, append-only. A slot is written before g_learned_count covers
// it (release), which pairs with the acquire load in IsEvaluationLoop. Only the
// thread that holds g_learning appends; others skip their turn.
constexpr int kMaxLearned = 32;
CodeRange g_learned[kMaxLearned];
std::atomic<int> g_learned_count{0};
std::atomic<bool> g_learning{false};
std::atomic<int> g_lessons{0};

bool InLearned(uintptr_t pc) noexcept {
  const int count = g_learned_count.load(std::memory_order_acquire);
  for (int i = 0; i < count; ++i) {
    if (g_learned[i].Contains(pc)) return true;
  }
  return false;
}

bool Learn(CodeRange range) noexcept {
  const int count =
      g_learned_count.load(std::memory_order_relaxed);  // only we change it
  if (count == kMaxLearned) return false;
  g_learned[count] = range;
  g_learned_count.store(count + 1, std::memory_order_release);
  return true;
}

// Walks this thread's stack; the function whose stack frame holds one of the
// `loops` addresses runs an evaluation loop.
bool LearnFromStack(const InterpreterCode& code, const uintptr_t* loops,
                    int count) noexcept {
  constexpr int kMaxDepth = 512;
  const runtime::ForkGate::Visit visit;
  if (!visit.entered()) return false;
  unw_context_t context;
  unw_cursor_t cursor;
  if (unw_getcontext(&context) != 0 || unw_init_local(&cursor, &context) != 0)
    return false;
  bool learned = false;
  for (int depth = 0; depth < kMaxDepth; ++depth) {
    unw_word_t pc = 0, bottom = 0, top = 0;
    unw_proc_info_t procedure;
    unw_get_reg(&cursor, UNW_REG_IP, &pc);
    unw_get_reg(&cursor, UNW_REG_SP, &bottom);
    const bool interesting = code.module.Contains(pc - 1) &&
                             !InLearned(pc - 1) &&
                             unw_get_proc_info(&cursor, &procedure) == 0;
    if (unw_step(&cursor) <= 0) break;
    unw_get_reg(&cursor, UNW_REG_SP, &top);
    for (int i = 0; interesting && i < count; ++i) {
      if (loops[i] - bottom >= top - bottom) continue;
      learned |= Learn({procedure.start_ip, procedure.end_ip});
      break;
    }
  }
  return learned;
}

}  // namespace

void AddSplitParts(const char* path, const char* function,
                   uintptr_t expected_value, uintptr_t base,
                   InterpreterCode* code) noexcept {
  const MappedFile file(path);
  const SymbolTable table = FindSymbolTable(file);
  const size_t length = strlen(function);
  InterpreterCode found = *code;
  bool same_file = false;
  for (uint64_t i = 0; i < table.count; ++i) {
    const Elf64_Sym& symbol = table.symbols[i];
    if (ELF64_ST_TYPE(symbol.st_info) != STT_FUNC) continue;
    const char* name = table.Name(symbol);
    if (name == nullptr || strncmp(name, function, length) != 0) continue;
    if (name[length] == '\0' && symbol.st_value == expected_value)
      same_file = true;
    if (name[length] == '.')
      AddPart(base + symbol.st_value, symbol.st_size, &found);
  }
  if (same_file) *code = found;
}

const InterpreterCode* FindInterpreterCode() noexcept {
  if (__builtin_expect(g_state.load(std::memory_order_acquire) == State::kKnown,
                       1)) {
    return &g_code;
  }
  const PyImage image = PythonImage();
  if (image.eval_frame == nullptr) return nullptr;
  const int saved_errno = errno;
  Loaded loaded{};
  loaded.address = reinterpret_cast<uintptr_t>(image.eval_frame);
  if (ForEachModule(OnModule, &loaded)) {
    AddSplitParts(loaded.path, kEvaluationLoop, loaded.value, loaded.base,
                  &loaded.code);
    State expected = State::kUnknown;
    if (g_state.compare_exchange_strong(expected, State::kPublishing,
                                        std::memory_order_relaxed)) {
      g_code = loaded.code;
      g_state.store(State::kKnown, std::memory_order_release);
    }
  }
  errno = saved_errno;
  // Another thread may be in the middle of storing the same values: a copy of a
  // few words, so wait for it rather than give this stack another shape.
  while (g_state.load(std::memory_order_acquire) == State::kPublishing)
    __builtin_ia32_pause();
  return g_state.load(std::memory_order_acquire) == State::kKnown ? &g_code
                                                                  : nullptr;
}

bool IsEvaluationLoop(const InterpreterCode& code, uintptr_t pc) noexcept {
  if (g_learned_count.load(std::memory_order_acquire) > 0) return InLearned(pc);
  for (int i = 0; i < code.part_count; ++i) {
    if (code.parts[i].Contains(pc)) return true;
  }
  return false;
}

bool LearnEvaluationLoops() noexcept {
  constexpr int kMaxLessons = 256;
  constexpr int kMaxLoops = 256;
  // Relaxed: a bound on the effort, not on data.
  if (g_lessons.load(std::memory_order_relaxed) >= kMaxLessons) return false;
  const InterpreterCode* code = FindInterpreterCode();
  uintptr_t loops[kMaxLoops];
  const int count = LoopAddresses(loops, kMaxLoops);
  if (code == nullptr || count == 0) return false;
  // Acquire and release hand g_learned from one learner to the next.
  if (g_learning.exchange(true, std::memory_order_acquire)) return false;
  g_lessons.fetch_add(1, std::memory_order_relaxed);
  const int saved_errno = errno;
  const bool learned = LearnFromStack(*code, loops, count);
  errno = saved_errno;
  g_learning.store(false, std::memory_order_release);
  return learned;
}

}  // namespace dstrace::stacks
