// SPDX-License-Identifier: Apache-2.0
#include "tests/support/trace_builder.h"

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <tuple>
#include <utility>

namespace dstrace::testing {
namespace {

constexpr size_t kChunkBytes = 65536;
constexpr size_t kPageBytes = 4096;
constexpr size_t kPayloadBytes = kChunkBytes - 46;
constexpr size_t kSlotBytes = 32;
constexpr size_t kDictionarySlots = 4096;

[[noreturn]] void Die(const char* why) {
  std::fprintf(stderr, "TraceBuilder: %s\n", why);
  std::abort();
}

std::string Varint(uint64_t value) {
  std::string out;
  for (; value >= 0x80; value >>= 7) {
    out.push_back(static_cast<char>(value | 0x80));
  }
  out.push_back(static_cast<char>(value));
  return out;
}

std::string Padded(uint64_t value) {
  std::string out;
  for (int i = 0; i < 4; ++i, value >>= 7) {
    out.push_back(static_cast<char>(value | 0x80));
  }
  out.push_back(static_cast<char>(value & 0x7f));
  return out;
}

std::string ZigZag(int64_t value) {
  return Varint((static_cast<uint64_t>(value) << 1) ^
                static_cast<uint64_t>(value >> 63));
}

std::string Little(uint64_t value, size_t bytes) {
  std::string out;
  for (size_t i = 0; i < bytes; ++i, value >>= 8) {
    out.push_back(static_cast<char>(value));
  }
  return out;
}

}  // namespace

struct ThreadBuilder::Chunk {
  uint32_t thread = 0;
  uint32_t sequence = 0;
  uint64_t first_time = 0;
  uint64_t last_time = 0;  // as recorded when closed
  uint64_t time = 0;       // of the last record
  std::string payload;
  std::string recent;
  std::map<std::tuple<uint64_t, uint64_t, uint32_t>, uint32_t> slots;
  size_t slots_given = 0;
  uint64_t literal = 0;  // address and device of the last one
  uint32_t literal_device = 0;

  [[nodiscard]] std::string Header() const {
    std::string out("\x85\x01", 2);
    out += Little(payload.size(), 4);
    out += '\x15' + Little(thread, 4);
    out += '\x1d' + Little(sequence, 4);
    out += '\x21' + Little(first_time, 8);
    out += '\x29' + Little(last_time, 8);
    return out + '\x32';
  }
};

ThreadBuilder::Chunk& ThreadBuilder::Open(uint64_t time) {
  // Leaves room for the largest tuple; messages check for themselves.
  if (chunk_ != nullptr && chunk_->payload.size() + 80 > kPayloadBytes) Close();
  if (chunk_ == nullptr) {
    auto made = std::make_unique<Chunk>();
    made->thread = tid_;
    made->sequence = trace_->sequence_++;
    made->first_time = made->time = time;
    chunk_ = made.get();
    trace_->chunks_.push_back(std::move(made));
  }
  return *chunk_;
}

void ThreadBuilder::Close() {
  if (chunk_ == nullptr) return;
  chunk_->last_time = chunk_->time;
  chunk_ = nullptr;
}

size_t ThreadBuilder::committed() const {
  return chunk_ == nullptr ? 0 : chunk_->payload.size();
}

uint64_t ThreadBuilder::Advance(uint64_t time) {
  Chunk& chunk = Open(time);
  if (time < chunk.time) Die("times of a thread must not decrease");
  const uint64_t delta = time - chunk.time;
  chunk.time = time;
  return delta;
}

std::string ThreadBuilder::Block(uint64_t address, uint64_t size,
                                 uint32_t device) {
  const auto slot = chunk_->slots.find({address, size, device});
  if (slot != chunk_->slots.end()) return Varint(slot->second + 1);
  std::string out = Varint(0);
  const auto delta = static_cast<int64_t>(address - chunk_->literal);
  if (device == chunk_->literal_device && delta % 512 == 0 && size % 512 == 0) {
    out += ZigZag(delta / 512) + Varint(size / 512);
  } else {
    out += ZigZag(delta) + Varint(size) + Varint(device);
  }
  chunk_->literal = address;
  chunk_->literal_device = device;
  if (chunk_->slots_given < kDictionarySlots) {
    chunk_->slots[{address, size, device}] =
        static_cast<uint32_t>(chunk_->slots_given++);
  }
  return out;
}

void ThreadBuilder::Tuple(uint32_t field, const std::string& body) {
  chunk_->payload += Varint(field << 3 | 2) + Varint(body.size()) + body;
}

void ThreadBuilder::Alloc(uint64_t time, uint32_t stack, uint64_t address,
                          uint64_t size, uint32_t torch_device) {
  const uint64_t delta = Advance(time);
  Tuple(1, Varint(delta) + Varint(stack) + Block(address, size, torch_device));
}

void ThreadBuilder::Recent(uint64_t time, uint32_t stack, uint64_t address,
                           int64_t size, int tag_error) {
  Chunk& chunk = Open(time);
  const size_t tag = chunk.payload.size() + 1 + static_cast<size_t>(tag_error);
  chunk.recent += Little(time, 8) + Little(address, 8) +
                  Little(static_cast<uint64_t>(size), 8) + Little(stack, 4) +
                  Little(kCuda0, 2) + Little(tag, 2);
}

void ThreadBuilder::Free(uint64_t time, uint64_t address, uint64_t size,
                         uint32_t torch_device) {
  const uint64_t delta = Advance(time);
  Tuple(2, Varint(delta) + Block(address, size, torch_device));
}

void ThreadBuilder::StreamEvent(uint64_t time, uint64_t kind, uint64_t event,
                                uint64_t stream) {
  const uint64_t delta = Advance(time);
  Tuple(15, Varint(delta) + Varint(kind) + Varint(event) + Varint(stream));
}

template <typename Message, typename AddTo>
void ThreadBuilder::AddTimed(uint64_t time, Message message, AddTo add) {
  // Serialized with the greatest delta to learn whether it fits.
  message.set_time(UINT64_MAX);
  if (committed() + message.ByteSizeLong() + 8 > kPayloadBytes) Close();
  message.set_time(Advance(time));
  proto::Records records;
  *add(&records) = std::move(message);
  chunk_->payload += records.SerializeAsString();
}

void ThreadBuilder::Add(uint64_t time, proto::DeviceEvent event) {
  AddTimed(time, std::move(event),
           [](proto::Records* to) { return to->add_device_event(); });
}
void ThreadBuilder::Add(uint64_t time, proto::MemorySample event) {
  AddTimed(time, std::move(event),
           [](proto::Records* to) { return to->add_memory_sample(); });
}
void ThreadBuilder::Add(uint64_t time, proto::TorchTotals event) {
  AddTimed(time, std::move(event),
           [](proto::Records* to) { return to->add_torch_totals(); });
}
void ThreadBuilder::Add(uint64_t time, proto::OutOfMemory event) {
  AddTimed(time, std::move(event),
           [](proto::Records* to) { return to->add_out_of_memory(); });
}
void ThreadBuilder::Add(uint64_t time, proto::Mark event) {
  AddTimed(time, std::move(event),
           [](proto::Records* to) { return to->add_mark(); });
}
void ThreadBuilder::Add(uint64_t time, proto::End event) {
  AddTimed(time, std::move(event),
           [](proto::Records* to) { return to->add_end(); });
}

void ThreadBuilder::Define(const proto::Records& records) {
  Raw(records.SerializeAsString());
}

void ThreadBuilder::Raw(std::string_view bytes) {
  if (bytes.size() > kPayloadBytes) Die("more than a chunk holds");
  if (committed() + bytes.size() > kPayloadBytes) Close();
  Chunk& chunk = Open(chunk_ == nullptr ? TraceBuilder::kStart : chunk_->time);
  chunk.payload += bytes;
}

TraceBuilder::TraceBuilder(bool with_header) {
  if (!with_header) return;
  proto::Records records;
  *records.add_header() = DefaultHeader();
  thread(1).Define(records);
}

TraceBuilder::~TraceBuilder() = default;

proto::Header TraceBuilder::DefaultHeader() {
  proto::Header header;
  header.set_format_version(1);
  header.set_dstrace_version("0.1.0");
  header.set_pid(4242);
  header.set_parent_pid(4241);
  header.set_host("node7.test");
  header.add_command("python");
  header.add_command("train.py");
  header.set_executable("/usr/bin/python3.11");
  header.set_monotonic_time(kStart);
  header.set_real_time(1'700'000'000'000'000'000);
  header.set_stacks("full");
  header.set_crash_proof(true);
  return header;
}

ThreadBuilder& TraceBuilder::thread(uint32_t tid) {
  return threads_.try_emplace(tid, ThreadBuilder(this, tid)).first->second;
}

uint32_t TraceBuilder::String(const std::string& value) {
  const auto [entry, added] =
      strings_.try_emplace(value, static_cast<uint32_t>(strings_.size() + 1));
  if (added) {
    proto::Records records;
    proto::String* const string = records.add_string();
    string->set_id(entry->second);
    string->set_value(value);
    thread(1).Define(records);
  }
  return entry->second;
}

uint32_t TraceBuilder::Module(const std::string& path) {
  const auto [entry, added] =
      modules_.try_emplace(path, static_cast<uint32_t>(modules_.size() + 1));
  if (added) {
    proto::Records records;
    proto::Module* const module = records.add_module();
    module->set_id(entry->second);
    module->set_path(String(path));
    module->set_base(0x7f0000000000 + entry->second * 0x1000000);
    module->set_size(0x100000);
    module->set_build_id("\x01\x02");
    thread(1).Define(records);
  }
  return entry->second;
}

uint32_t TraceBuilder::NativeFrame(const std::string& module_path,
                                   const std::string& symbol) {
  proto::Records records;
  proto::Frame* const frame = records.add_frame();
  frame->set_id(++frames_);
  frame->set_module(Module(module_path));
  frame->set_pc(0x7f0000000000 + frame->module() * 0x1000000 + frames_);
  if (!symbol.empty()) {
    frame->set_name(String(symbol));
    frame->set_name_offset(4);
  }
  thread(1).Define(records);
  return frames_;
}

uint32_t TraceBuilder::PythonFrame(const std::string& function,
                                   const std::string& file, uint32_t line) {
  proto::Records records;
  proto::Frame* const frame = records.add_frame();
  frame->set_id(++frames_);
  frame->set_kind(proto::Frame::PYTHON);
  frame->set_name(String(function));
  frame->set_file(String(file));
  frame->set_line(line);
  frame->set_first_line(line > 3 ? line - 3 : 1);
  thread(1).Define(records);
  return frames_;
}

uint32_t TraceBuilder::Stack(const std::vector<uint32_t>& frames,
                             bool truncated) {
  proto::Records records;
  proto::Stack* const stack = records.add_stack();
  stack->set_id(++stacks_);
  for (const uint32_t frame : frames) stack->add_frame(frame);
  stack->set_truncated(truncated);
  thread(1).Define(records);
  return stacks_;
}

uint32_t TraceBuilder::NativeStack(
    const std::vector<std::string>& module_paths) {
  std::vector<uint32_t> frames;
  for (const std::string& path : module_paths) {
    frames.push_back(NativeFrame(path));
  }
  return Stack(frames);
}

void TraceBuilder::Reserve(size_t pages) {
  for (size_t i = 0; i < pages; ++i) chunks_.push_back(nullptr);
}

std::string TraceBuilder::Bytes() const { return Serialize(false); }

std::string TraceBuilder::CompactBytes() const { return Serialize(true); }

std::string TraceBuilder::Serialize(bool compact) const {
  std::string out;
  for (const auto& chunk : chunks_) {
    if (chunk == nullptr) {
      std::string page = '\x7a' + Padded(kPageBytes - 6);
      page.resize(kPageBytes);
      out += page;
      continue;
    }
    if (compact) {
      const std::string body =
          chunk->Header() + Varint(chunk->payload.size()) + chunk->payload;
      out += '\x0a' + Varint(body.size()) + body;
      continue;
    }
    std::string whole = '\x0a' + Padded(kChunkBytes - 6) + chunk->Header();
    if (chunk->recent.empty()) {  // as files from before there was `recent`
      whole += Padded(kPayloadBytes) + chunk->payload;
    } else {
      const size_t recent = recent_slots_ * kSlotBytes;
      whole += Padded(kPayloadBytes - recent - 4) + chunk->payload;
      whole.resize(kChunkBytes - recent - 4);
      whole += "\x8a\x01" + Varint(recent) + chunk->recent;
    }
    whole.resize(kChunkBytes);
    out += whole;
  }
  return out;
}

void TraceBuilder::WriteTo(const std::string& path) const {
  WriteFile(path, Bytes());
}

void WriteFile(const std::string& path, std::string_view bytes) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  file.close();
  if (!file) Die("cannot write the file");
}

}  // namespace dstrace::testing
