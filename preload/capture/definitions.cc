// SPDX-License-Identifier: Apache-2.0
#include "preload/capture/definitions.h"

#include <algorithm>

#include "preload/runtime/clock.h"

namespace dstrace::capture {
namespace {

// Longest text kept. Names of deep templates run to tens of kilobytes; their
// start is what a person reads.
constexpr size_t kMaxText = 2048;

// Seeds keep keys of different kinds apart where they share a table.
enum Seed : uint64_t { kText = 1, kModuleSeed, kNativeSeed, kPythonSeed };

// Tag, length and the fields of a definition without its text.
constexpr size_t kOverhead = 128;

}  // namespace

uint32_t Definitions::Find(const IdTable& table, const Key& key) noexcept {
  const runtime::MutexLock lock(mutex_);
  return table.Find(key);
}

template <typename Put>
uint32_t Definitions::Define(ThreadState& thread, IdTable& table,
                             const Key& key, size_t max_bytes,
                             Put put) noexcept {
  const uint64_t now = runtime::MonotonicNow();
  // Before the lock: a new chunk takes the file's lock.
  if (pinned_ != nullptr ? !pinned_->Reserve(file_, max_bytes, now)
                         : !thread.log.EnsureRoom(file_, max_bytes, now)) {
    return 0;
  }
  const runtime::MutexLock lock(mutex_);
  if (const uint32_t known = table.Find(key); known != 0) return known;
  const uint32_t id = table.Add(key);
  if (id == 0) return 0;
  if (pinned_ != nullptr) {
    pinned_->Write(file_, max_bytes, thread.log.thread(), 0, now,
                   [&](wire::Encoder& out, uint64_t) { put(out, id); });
    return id;
  }
  wire::Encoder record = thread.log.encoder();
  put(record, id);
  thread.log.Commit(record);
  return id;
}

uint32_t Definitions::String(ThreadState& thread,
                             std::string_view text) noexcept {
  if (text.empty()) return 0;
  text = text.substr(0, kMaxText);
  const Key key = HashText(text, kText);
  if (const uint32_t known = Find(strings_, key); known != 0) return known;
  return Define(thread, strings_, key, kOverhead + text.size(),
                [text](wire::Encoder& out, uint32_t id) {
                  wire::PutString(out, id, text);
                });
}

uint32_t Definitions::Module(ThreadState& thread,
                             const stacks::ModuleInfo& module) noexcept {
  const uint64_t words[] = {module.base, module.end};
  const Key key =
      HashWords(words, HashText(module.path, kModuleSeed).low ^ generation());
  if (const uint32_t known = Find(modules_, key); known != 0) return known;
  const uint32_t path = String(thread, module.path);
  return Define(thread, modules_, key,
                kOverhead + stacks::ModuleInfo::kMaxBuildId,
                [&module, path](wire::Encoder& out, uint32_t id) {
                  const std::string_view build_id(
                      reinterpret_cast<const char*>(module.build_id),
                      module.build_id_size);
                  wire::PutModule(out, id, path, module.base,
                                  module.end - module.base, build_id);
                });
}

uint32_t Definitions::NativeFrame(ThreadState& thread, const Key& key,
                                  uintptr_t pc) noexcept {
  stacks::SymbolInfo& symbol = thread.symbol;
  wire::FrameFields fields{.pc = pc};
  // pc - 1: a return address may already belong to the next function.
  if (stacks::DescribeNative(pc - 1, &symbol)) {
    fields.module = Module(thread, symbol.module);
    fields.name = String(thread, symbol.name);
    fields.name_offset = fields.name != 0 ? symbol.offset + 1 : 0;
  }
  return Define(thread, frames_, key, kOverhead,
                [&fields](wire::Encoder& out, uint32_t id) {
                  fields.id = id;
                  wire::PutFrame(out, fields);
                });
}

uint32_t Definitions::PythonFrame(ThreadState& thread, const Key& key,
                                  const stacks::Frame& frame) noexcept {
  stacks::PyCodeInfo& code = thread.code;
  stacks::PyFrame source{};
  source.code = reinterpret_cast<const void*>(frame.pc_or_code);
  source.lasti = frame.lasti;
  wire::FrameFields fields{.python = true};
  if (stacks::DescribeFrame(source, &code)) {
    fields.name = String(thread, code.name);
    fields.file = String(thread, code.file);
    fields.line = static_cast<uint32_t>(std::max(code.line, 0));
    fields.first_line = static_cast<uint32_t>(std::max(code.first_line, 0));
  }
  return Define(thread, frames_, key, kOverhead,
                [&fields](wire::Encoder& out, uint32_t id) {
                  fields.id = id;
                  wire::PutFrame(out, fields);
                });
}

uint32_t Definitions::Frame(ThreadState& thread,
                            const stacks::Frame& frame) noexcept {
  if (frame.kind == stacks::Frame::Kind::kPython) {
    const void* code = reinterpret_cast<const void*>(frame.pc_or_code);
    const uint64_t words[] = {frame.pc_or_code, frame.lasti,
                              stacks::CodeFingerprint(code)};
    const Key key = HashWords(words, kPythonSeed);
    const uint32_t known = Find(frames_, key);
    return known != 0 ? known : PythonFrame(thread, key, frame);
  }
  const uint64_t words[] = {frame.pc_or_code, generation()};
  const Key key = HashWords(words, kNativeSeed);
  const uint32_t known = Find(frames_, key);
  return known != 0 ? known : NativeFrame(thread, key, frame.pc_or_code);
}

uint32_t Definitions::Stack(ThreadState& thread, const Key& key, int frames,
                            bool truncated) noexcept {
  if (const uint32_t known = Find(stacks_, key); known != 0) return known;
  const auto count = static_cast<size_t>(frames);
  for (size_t i = 0; i < count; ++i) {
    thread.frame_ids[i] = Frame(thread, thread.merged[i]);
  }
  return Define(thread, stacks_, key, kOverhead + count * 5,
                [&thread, count, truncated](wire::Encoder& out, uint32_t id) {
                  wire::PutStack(out, id, {thread.frame_ids, count}, truncated);
                });
}

void Definitions::AbandonInChild() noexcept {
  mutex_.ResetAfterFork();
  strings_.Clear();
  modules_.Clear();
  frames_.Clear();
  stacks_.Clear();
}

}  // namespace dstrace::capture
