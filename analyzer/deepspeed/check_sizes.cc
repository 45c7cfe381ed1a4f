// SPDX-License-Identifier: Apache-2.0
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "analyzer/deepspeed/checks.h"

namespace dstrace::deepspeed {
namespace {

struct SizeKey {
  const char* name;
  int64_t Settings::*elements;
  bool stage3_only;
  int bytes;  // per element; 0: of a parameter
  const char* meaning;
};

constexpr SizeKey kSizeKeys[] = {
    {"reduce_bucket_size", &Settings::reduce_bucket_size, false, 0,
     "gradient bucket, kept from initialize on (contiguous_gradients)"},
    {"sub_group_size", &Settings::sub_group_size, true, 4,
     "fp32 gradient buffer of one sub-group; Adam's temporaries come on top"},
    {"prefetch_bucket_size", &Settings::prefetch_bucket_size, true, 0,
     "parameters gathered ahead in forward and backward"},
    {"max_live_parameters", &Settings::max_live_parameters, true, 0,
     "most parameters gathered at once in forward and backward"},
    {"param_persistence_threshold", &Settings::param_persistence_threshold,
     true, 0, "a parameter up to this size stays gathered in training"},
};

std::string Origin(const ConfigView& view, Launcher launcher,
                   const JsonMember* written, const std::string& path) {
  if (written == nullptr) return "default";
  if (!view.IsAuto(path)) return "set";
  std::string fill = view.rules().HfTrainerFill(
      absl::StrCat("zero_optimization.", written->key));
  if (launcher != Launcher::kHfTrainer || fill.empty()) {
    return "\"auto\": default";
  }
  return view.options().hidden_size > 0
             ? absl::StrCat("\"auto\": HF Trainer, ", fill)
             : absl::StrCat("\"auto\": default until HF Trainer writes ", fill);
}

}  // namespace

std::string ShowBytes(double bytes) {
  if (bytes >= 1e9) {
    return absl::StrFormat("%.2f GB (%.2f GiB)", bytes / 1e9,
                           bytes / (1024.0 * 1024 * 1024));
  }
  return absl::StrFormat("%.1f MiB", bytes / (1024.0 * 1024));
}

std::vector<SizeRow> ListSizes(const ConfigView& view, Launcher launcher,
                               const Settings& settings) {
  std::vector<SizeRow> rows;
  if (settings.stage == 0) return rows;
  for (const SizeKey& key : kSizeKeys) {
    if (key.stage3_only && settings.stage != 3) continue;
    std::string path = absl::StrCat("zero_optimization.", key.name);
    const JsonMember* written = view.Written(path);
    SizeRow row;
    row.key = written != nullptr ? written->key : key.name;
    row.line = written != nullptr ? written->place.line : 0;
    row.elements = settings.*key.elements;
    row.bytes =
        row.elements * (key.bytes != 0 ? key.bytes : settings.param_bytes);
    row.origin = Origin(view, launcher, written, path);
    row.meaning = key.meaning;
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace dstrace::deepspeed
