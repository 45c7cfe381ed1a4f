// SPDX-License-Identifier: Apache-2.0
#include "analyzer/deepspeed/config_view.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace dstrace::deepspeed {
namespace {

std::pair<std::string_view, std::string_view> SplitPath(std::string_view path) {
  size_t dot = path.rfind('.');
  if (dot == std::string_view::npos) return {"", path};
  return {path.substr(0, dot), path.substr(dot + 1)};
}

bool IsAutoValue(const JsonValue& value) {
  return value.kind == JsonKind::kString && value.text == "auto";
}

}  // namespace

Scalar ToScalar(const JsonValue& value) {
  switch (value.kind) {
    case JsonKind::kBool:
      return value.boolean;
    case JsonKind::kNumber:
      return value.number;
    case JsonKind::kString:
      return value.text;
    default:
      return std::monostate();
  }
}

std::string ShowScalar(const Scalar& value) {
  if (const bool* boolean = std::get_if<bool>(&value)) {
    return *boolean ? "true" : "false";
  }
  if (const double* number = std::get_if<double>(&value)) {
    if (std::abs(*number) < 1e15 && *number == std::floor(*number)) {
      return absl::StrFormat("%d", static_cast<int64_t>(*number));
    }
    return absl::StrFormat("%g", *number);
  }
  if (const auto* text = std::get_if<std::string>(&value)) return *text;
  return "null";
}

const KeyRule* ConfigView::FindKey(std::string_view path,
                                   const SectionRule** section) const {
  auto [parent, name] = SplitPath(path);
  *section = rules_.FindSection(parent, options_.version);
  if (*section == nullptr) return nullptr;
  const KeyRule* key = (*section)->Find(name);
  return key != nullptr && key->range.Holds(options_.version) ? key : nullptr;
}

const JsonMember* ConfigView::Written(std::string_view path) const {
  const JsonMember* member = FindPath(root_, path);
  if (member != nullptr) return member;
  const SectionRule* section = nullptr;
  const KeyRule* key = FindKey(path, &section);
  if (key == nullptr || key->alias.empty()) return nullptr;
  auto [parent, name] = SplitPath(path);
  const std::string& other = key->alias == name ? key->name : key->alias;
  if (parent.empty()) return FindPath(root_, other);
  return FindPath(root_, absl::StrCat(std::string(parent), ".", other));
}

bool ConfigView::IsAuto(std::string_view path) const {
  const JsonMember* member = Written(path);
  return member != nullptr && IsAutoValue(member->value);
}

// "-1" is read as -1, and pydantic 1 cuts 1.5 to 1.
static Scalar AsInteger(const Scalar& value, bool cuts_fraction) {
  int64_t parsed = 0;
  if (const auto* text = std::get_if<std::string>(&value)) {
    if (absl::SimpleAtoi(*text, &parsed)) return static_cast<double>(parsed);
  }
  const double* number = std::get_if<double>(&value);
  if (number != nullptr && cuts_fraction) return std::trunc(*number);
  return value;
}

Scalar ConfigView::Effective(std::string_view path) const {
  if (!path.empty() && path[0] == '$') return Fact(path.substr(1));
  const SectionRule* section = nullptr;
  const KeyRule* key = FindKey(path, &section);
  const JsonMember* member = Written(path);
  bool dropped = member != nullptr && IsAutoValue(member->value) &&
                 section != nullptr && section->drops_auto;
  if (member != nullptr && !dropped) {
    if (key == nullptr && section != nullptr &&
        section->unknown != UnknownKeys::kOpen) {
      return std::monostate();
    }
    Scalar value = ToScalar(member->value);
    // Sections that refuse unknown keys are read by pydantic.
    bool typed = key != nullptr && key->type == "int" && section != nullptr &&
                 section->unknown == UnknownKeys::kRejected;
    bool cuts = options_.version < rules_.pydantic2_since();
    return typed ? AsInteger(value, cuts) : value;
  }
  return key != nullptr ? key->default_value : Scalar();
}

std::optional<double> ConfigView::EffectiveNumber(std::string_view path) const {
  Scalar value = Effective(path);
  if (const double* number = std::get_if<double>(&value)) return *number;
  if (const bool* boolean = std::get_if<bool>(&value)) return *boolean ? 1 : 0;
  if (const auto* text = std::get_if<std::string>(&value)) {
    int64_t parsed = 0;
    if (absl::SimpleAtoi(*text, &parsed)) return static_cast<double>(parsed);
  }
  return std::nullopt;
}

bool ConfigView::EffectiveTrue(std::string_view path) const {
  Scalar value = Effective(path);
  if (const bool* boolean = std::get_if<bool>(&value)) return *boolean;
  if (const double* number = std::get_if<double>(&value)) return *number != 0;
  return false;
}

int ConfigView::gpus_per_node() const {
  if (options_.gpus_per_node > 0) return options_.gpus_per_node;
  if (options_.world_size <= 0) return 0;
  return std::min(options_.world_size, 8);
}

int ConfigView::nodes() const {
  if (options_.world_size <= 0) return 0;
  int per_node = gpus_per_node();
  return (options_.world_size + per_node - 1) / per_node;
}

Scalar ConfigView::Fact(std::string_view name) const {
  auto known = [](int value) {
    return value > 0 ? Scalar(static_cast<double>(value)) : Scalar();
  };
  auto flag = [](bool value) { return Scalar(value ? 1.0 : 0.0); };
  if (name == "world_size") return known(options_.world_size);
  if (name == "gpus_per_node") return known(gpus_per_node());
  if (name == "nodes") return known(nodes());
  if (name == "mics_init") {
    return options_.mics_init ? flag(*options_.mics_init) : flag(false);
  }
  if (name == "launcher_plain") {
    return flag(options_.launcher == Launcher::kPlain);
  }
  if (name == "bf16_enabled") {
    return flag(EffectiveTrue(FindMember(root_, "bf16") != nullptr
                                  ? "bf16.enabled"
                                  : "bfloat16.enabled"));
  }
  if (name == "precision_auto") {
    return flag(IsAuto("fp16.enabled") || IsAuto("bf16.enabled"));
  }
  if (name == "batch_keys") {
    double count = 0;
    for (const char* key : {"train_batch_size", "gradient_accumulation_steps",
                            "train_micro_batch_size_per_gpu"}) {
      if (FindMember(root_, key) != nullptr) ++count;
    }
    return count;
  }
  return std::monostate();
}

Finding ConfigView::At(std::string_view path, Severity severity,
                       std::string_view rule) const {
  Finding finding;
  finding.severity = severity;
  finding.rule = std::string(rule);
  finding.place.key = std::string(path);
  if (!path.empty() && path[0] == '$') return finding;
  std::string_view rest = path;
  while (!rest.empty()) {
    const JsonMember* member = Written(rest);
    if (member != nullptr) {
      finding.place.line = member->place.line;
      finding.place.column = member->place.column;
      break;
    }
    rest = SplitPath(rest).first;
  }
  return finding;
}

namespace {

int64_t Elements(const ConfigView& view, const std::string& name,
                 int64_t otherwise) {
  std::optional<double> value =
      view.EffectiveNumber(absl::StrCat("zero_optimization.", name));
  // Written by hand: keep nonsense out of the arithmetic that follows.
  if (!value || !std::isfinite(*value) || *value < -1 || *value > 9e15) {
    return otherwise;
  }
  return static_cast<int64_t>(*value);
}

Offload ReadOffload(const ConfigView& view, const std::string& name,
                    const std::string& old_flag) {
  Scalar device =
      view.Effective(absl::StrCat("zero_optimization.", name, ".device"));
  const auto* text = std::get_if<std::string>(&device);
  if (text != nullptr && *text == "cpu") return Offload::kCpu;
  if (text != nullptr && *text == "nvme") return Offload::kNvme;
  if (view.EffectiveTrue(absl::StrCat("zero_optimization.", old_flag))) {
    return Offload::kCpu;
  }
  return Offload::kNone;
}

int DtypeBytes(const ConfigView& view, std::string_view path, int otherwise) {
  Scalar value = view.Effective(path);
  const auto* text = std::get_if<std::string>(&value);
  if (text == nullptr) return otherwise;
  return *text == "fp32" || *text == "float32" ? 4 : 2;
}

}  // namespace

Settings ReadSettings(const ConfigView& view) {
  Settings settings;
  settings.version = view.options().version;
  settings.world_size = view.options().world_size;
  settings.gpus_per_node = view.gpus_per_node();
  settings.stage =
      static_cast<int>(std::clamp<int64_t>(Elements(view, "stage", 0), 0, 3));
  const JsonMember* zero = FindMember(view.root(), "zero_optimization");
  if (zero != nullptr && zero->value.kind == JsonKind::kBool) {
    settings.stage = zero->value.boolean ? 1 : 0;
  }
  settings.mics_shard_size = Elements(view, "mics_shard_size", -1);
  settings.mics_hierarchical =
      view.EffectiveTrue("zero_optimization.mics_hierarchical_params_gather");
  settings.hpz_partition_size = Elements(view, "zero_hpz_partition_size", 1);
  // Releases before the key always patched Module.apply.
  Scalar override_apply =
      view.Effective("zero_optimization.override_module_apply");
  settings.override_module_apply =
      !(std::holds_alternative<bool>(override_apply) &&
        !std::get<bool>(override_apply));
  settings.contiguous_gradients =
      view.EffectiveTrue("zero_optimization.contiguous_gradients");
  settings.sub_group_size = Elements(view, "sub_group_size", 1000000000);
  const JsonMember* written = view.Written("zero_optimization.sub_group_size");
  settings.sub_group_size_written =
      written != nullptr && written->value.kind == JsonKind::kNumber;
  settings.reduce_bucket_size = Elements(view, "reduce_bucket_size", 500000000);
  settings.allgather_bucket_size =
      Elements(view, "allgather_bucket_size", 500000000);
  settings.prefetch_bucket_size =
      Elements(view, "prefetch_bucket_size", 50000000);
  settings.max_live_parameters =
      Elements(view, "max_live_parameters", 1000000000);
  settings.param_persistence_threshold =
      Elements(view, "param_persistence_threshold", 100000);
  settings.offload_optimizer =
      ReadOffload(view, "offload_optimizer", "cpu_offload");
  settings.offload_param =
      ReadOffload(view, "offload_param", "cpu_offload_param");
  settings.pin_optimizer =
      view.EffectiveTrue("zero_optimization.offload_optimizer.pin_memory");
  settings.pin_param =
      view.EffectiveTrue("zero_optimization.offload_param.pin_memory");
  bool sixteen = view.EffectiveTrue("fp16.enabled") ||
                 view.EffectiveTrue("$bf16_enabled") ||
                 view.EffectiveTrue("$precision_auto");
  settings.param_bytes = sixteen ? 2 : 4;
  settings.grad_bytes =
      DtypeBytes(view, "data_types.grad_accum_dtype", settings.param_bytes);
  settings.states_at_first_step =
      view.options().states_at_first_step.value_or(view.rules().Behaves(
          "adam-states-at-first-step", settings.version, settings.stage));
  Scalar optimizer = view.Effective("optimizer.type");
  if (const auto* text = std::get_if<std::string>(&optimizer)) {
    settings.optimizer = absl::AsciiStrToLower(*text);
  }
  return settings;
}

}  // namespace dstrace::deepspeed
