// SPDX-License-Identifier: Apache-2.0
#include "preload/capture/definitions.h"

#include <algorithm>

#include "preload/capture/recorder.h"
#include "preload/runtime/event_clock.h"
#include "preload/runtime/text.h"

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

uint32_t Definitions::Lose(bool is_full, uint32_t limit) noexcept {
  const auto cause = static_cast<uint32_t>(is_full ? LossCause::kStackTableFull
                                                   : LossCause::kNoMemory);
  losses_.CountLoss(cause);
  // relaxed: only this flag's own order matters.
  if (!is_full || told_full_.exchange(true, std::memory_order_relaxed)) {
    return 0;
  }
  runtime::Text<64> detail;
  detail << "the limit is " << uint64_t{limit};
  losses_.Write(ProcessLog::kNoTime, [&](wire::Encoder& out, uint64_t) {
    wire::PutLossDetail(out, cause, detail.view());
  });
  return 0;
}

template <typename Put>
uint32_t Definitions::Define(ThreadState& thread, IdTable& table,
                             const Key& key, size_t max_bytes,
                             Put put) noexcept {
  const uint64_t now = runtime::EventNow();
  // Before the lock: a new chunk takes the file's lock.
  if (pinned_ != nullptr ? !pinned_->Reserve(file_, max_bytes, now)
                         : !thread.log.EnsureRoom(file_, max_bytes, now)) {
    return 0;
  }
  mutex_.Lock();
  uint32_t id = table.Find(key);
  if (id == 0) {
    id = table.Add(key);
    if (id != 0) WriteDefinition(thread, max_bytes, now, id, put);
  }
  const bool is_full = table.is_full();
  const uint32_t size = table.size();
  mutex_.Unlock();
  return id != 0 ? id : Lose(is_full, size);
}

template <typename Put>
void Definitions::WriteDefinition(ThreadState& thread, size_t max_bytes,
                                  uint64_t now, uint32_t id, Put put) noexcept {
  if (pinned_ != nullptr) {
    pinned_->Write(file_, max_bytes, thread.log.thread(), 0, now,
                   [&](wire::Encoder& out, uint64_t) { put(out, id); });
    return;
  }
  wire::Encoder record = thread.log.encoder();
  put(record, id);
  thread.log.Commit(record);
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
  bool is_full = false;
  {
    const runtime::MutexLock lock(mutex_);
    if (const uint32_t known = stacks_.Find(key); known != 0) return known;
    is_full = stacks_.is_full();
  }
  // Its frames would be defined for nothing.
  if (is_full) return Lose(true, stacks_.size());
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
  // relaxed: a child of fork() has one thread.
  told_full_.store(false, std::memory_order_relaxed);
}

}  // namespace dstrace::capture
