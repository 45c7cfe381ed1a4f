// SPDX-License-Identifier: Apache-2.0
#include "analyzer/log/definitions.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "analyzer/log/lenient_parse.h"
#include "proto/trace.pb.h"

namespace dstrace::log {
namespace {

// The smallest definition: tag, length, and an id.
constexpr uint64_t kMinDefinitionBytes = 4;

// Grows `table` to hold `id`; null when the id cannot be genuine.
template <typename Entry>
Entry* Slot(std::vector<Entry>& table, uint32_t id, uint32_t limit) {
  if (id == 0 || id >= limit) return nullptr;
  if (id >= table.size()) table.resize(id + 1);
  return &table[id];
}

std::optional<int> FirstNumber(
    const std::map<std::string, std::string>& environment,
    std::initializer_list<const char*> names) {
  for (const char* const name : names) {
    const auto found = environment.find(name);
    int value = 0;
    if (found != environment.end() && absl::SimpleAtoi(found->second, &value) &&
        value >= 0) {
      return value;
    }
  }
  return std::nullopt;
}

}  // namespace

void Definitions::LimitTo(uint64_t file_bytes) {
  id_limit_ = static_cast<uint32_t>(
      std::min<uint64_t>(file_bytes / kMinDefinitionBytes + 2, UINT32_MAX));
}

bool Definitions::OnRecord(Record record, std::span<const uint8_t> bytes) {
  switch (record) {
    case Record::kStack:
      return AddStack(bytes);
    case Record::kFrame:
      return AddFrame(bytes);
    case Record::kModule:
      return AddModule(bytes);
    case Record::kString:
      return AddString(bytes);
    case Record::kHeader:
      return AddHeader(bytes);
    case Record::kProperty:
      return AddProperty(bytes);
    case Record::kGpu:
      return AddGpu(bytes);
    case Record::kLoss:
      return AddLoss(bytes);
    default:
      return true;
  }
}

bool Definitions::AddStack(std::span<const uint8_t> bytes) {
  proto::Stack from;
  if (!ParseLenient(&from, bytes)) return false;
  model::Stack* const to = Slot(stacks_, from.id(), id_limit_);
  if (to == nullptr) return false;
  to->frames.assign(from.frame().begin(), from.frame().end());
  to->truncated = from.truncated();
  return true;
}

bool Definitions::AddFrame(std::span<const uint8_t> bytes) {
  proto::Frame from;
  if (!ParseLenient(&from, bytes)) return false;
  PendingFrame* const to = Slot(frames_, from.id(), id_limit_);
  if (to == nullptr) return false;
  to->frame.kind = from.kind() == proto::Frame::PYTHON
                       ? model::Frame::Kind::kPython
                       : model::Frame::Kind::kNative;
  to->frame.pc = from.pc();
  to->frame.name_offset = from.name_offset();
  to->frame.line = from.line();
  to->frame.first_line = from.first_line();
  to->name = from.name();
  to->file = from.file();
  to->module = from.module();
  return true;
}

bool Definitions::AddModule(std::span<const uint8_t> bytes) {
  proto::Module from;
  if (!ParseLenient(&from, bytes)) return false;
  PendingModule* const to = Slot(modules_, from.id(), id_limit_);
  if (to == nullptr) return false;
  to->module.base = from.base();
  to->module.size = from.size();
  to->module.build_id = from.build_id();
  to->path = from.path();
  return true;
}

bool Definitions::AddString(std::span<const uint8_t> bytes) {
  proto::String from;
  if (!ParseLenient(&from, bytes)) return false;
  if (from.id() == 0 || from.id() >= id_limit_) return false;
  strings_.Set(from.id(), std::move(*from.mutable_value()), id_limit_);
  return true;
}

bool Definitions::AddHeader(std::span<const uint8_t> bytes) {
  proto::Header from;
  if (!ParseLenient(&from, bytes)) return false;
  if (headers_++ > 0) return true;  // the first one counts
  format_version_ = from.format_version();
  process_.dstrace_version = from.dstrace_version();
  process_.pid = from.pid();
  process_.parent_pid = from.parent_pid();
  process_.host = from.host();
  process_.command.assign(from.command().begin(), from.command().end());
  process_.executable = from.executable();
  for (const proto::Variable& variable : from.environment()) {
    process_.environment[variable.name()] = variable.value();
  }
  process_.start_monotonic_ns = from.monotonic_time();
  process_.start_real_ns = from.real_time();
  process_.stacks_mode = from.stacks();
  process_.crash_proof = from.crash_proof();
  return true;
}

bool Definitions::AddProperty(std::span<const uint8_t> bytes) {
  proto::Property from;
  if (!ParseLenient(&from, bytes)) return false;
  process_.properties[from.name()] = from.value();
  return true;
}

bool Definitions::AddGpu(std::span<const uint8_t> bytes) {
  proto::Gpu from;
  if (!ParseLenient(&from, bytes)) return false;
  model::Gpu gpu;
  gpu.index = static_cast<int>(from.index() & 0xffff);
  gpu.name = from.name();
  gpu.uuid = from.uuid();
  gpu.total_bytes = from.total_bytes();
  const auto known =
      std::find_if(process_.gpus.begin(), process_.gpus.end(),
                   [&](const model::Gpu& g) { return g.index == gpu.index; });
  if (known != process_.gpus.end()) {
    *known = std::move(gpu);
  } else {
    process_.gpus.push_back(std::move(gpu));
  }
  return true;
}

// Counts are totals of the process so far: the largest one is the last one.
bool Definitions::AddLoss(std::span<const uint8_t> bytes) {
  proto::Loss from;
  if (!ParseLenient(&from, bytes)) return false;
  model::Loss& loss = losses_[static_cast<uint32_t>(from.cause())];
  loss.cause =
      proto::Loss::Cause_IsValid(from.cause())
          ? absl::AsciiStrToLower(proto::Loss::Cause_Name(from.cause()))
          : "unknown";
  loss.count = std::max<uint64_t>(loss.count, from.count());
  if (!from.detail().empty()) loss.detail = from.detail();
  return true;
}

model::Process Definitions::TakeProcess() {
  std::sort(process_.gpus.begin(), process_.gpus.end(),
            [](const model::Gpu& a, const model::Gpu& b) {
              return a.index < b.index;
            });
  const auto& environment = process_.environment;
  // The recorder's order: within one batch job mpirun's ranks differ and the
  // batch system's own is the same for all.
  process_.rank =
      FirstNumber(environment, {"RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK",
                                "SLURM_PROCID", "LOCAL_RANK"});
  process_.world_size = FirstNumber(
      environment,
      {"WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS"});
  return std::move(process_);
}

// Frame 0 stands for every frame whose definition is not in the file.
model::Stacks Definitions::BuildStacks() const {
  model::Stacks result;
  for (size_t id = 1; id < modules_.size(); ++id) {
    model::Module module = modules_[id].module;
    module.path = std::string(strings_.Get(modules_[id].path));
    result.modules.push_back(std::move(module));
  }
  result.frames.resize(std::max<size_t>(frames_.size(), 1));
  for (size_t id = 1; id < frames_.size(); ++id) {
    const PendingFrame& from = frames_[id];
    model::Frame& frame = result.frames[id];
    frame = from.frame;
    frame.name = std::string(strings_.Get(from.name));
    frame.file = std::string(strings_.Get(from.file));
    const bool known = from.module > 0 && from.module < modules_.size();
    frame.module = known ? static_cast<int>(from.module) - 1 : -1;
  }
  result.stacks = stacks_;
  if (result.stacks.empty()) result.stacks.resize(1);
  for (model::Stack& stack : result.stacks) {
    for (uint32_t& frame : stack.frames) {
      if (frame >= result.frames.size()) frame = 0;
    }
  }
  return result;
}

std::vector<model::Loss> Definitions::Losses() const {
  std::vector<model::Loss> result;
  for (const auto& [cause, loss] : losses_) {
    if (loss.count > 0) result.push_back(loss);
  }
  return result;
}

}  // namespace dstrace::log
