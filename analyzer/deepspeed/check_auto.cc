// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "analyzer/deepspeed/checks.h"

namespace dstrace::deepspeed {
namespace {

// Small beside any model's states, large enough to keep a GPU busy.
constexpr int64_t kModestSubGroup = 100000000;

class AutoWalker {
 public:
  AutoWalker(const ConfigView& view, Launcher launcher,
             std::vector<Finding>* findings)
      : view_(view), launcher_(launcher), findings_(findings) {}

  void Walk(const JsonValue& object, const std::string& path) {
    const SectionRule* section =
        view_.rules().FindSection(path, view_.options().version);
    if (section == nullptr) return;
    for (const JsonMember& member : object.members) {
      std::string child =
          path.empty() ? member.key : absl::StrCat(path, ".", member.key);
      if (member.value.kind == JsonKind::kObject) {
        Walk(member.value, child);
        continue;
      }
      if (member.value.kind != JsonKind::kString ||
          member.value.text != "auto") {
        continue;
      }
      const KeyRule* key = section->Find(member.key);
      if (key != nullptr && key->range.Holds(view_.options().version) &&
          !Filled(child)) {
        Report(*section, *key, child);
      }
    }
  }

 private:
  bool Filled(const std::string& path) const {
    bool trainer = !view_.rules().HfTrainerFill(path).empty();
    bool accelerate = view_.rules().AccelerateFills(path);
    if (launcher_ == Launcher::kHfTrainer) return trainer || accelerate;
    if (launcher_ == Launcher::kAccelerate) return trainer || accelerate;
    return false;
  }

  void Report(const SectionRule& section, const KeyRule& key,
              const std::string& path) {
    if (path == "zero_optimization.stage") return;  // has its own rule
    Finding finding = view_.At(path, Severity::kNote, "auto-default");
    finding.source = section.drops_auto ? section.auto_source : key.source;
    std::string who =
        launcher_ == Launcher::kHfTrainer || launcher_ == Launcher::kAccelerate
            ? "HF Trainer has no rule for it"
            : "only HF Trainer replaces it";
    if (view_.rules().HfTrainerFill(path).empty()) {
      who = "nobody replaces it, HF Trainer neither";
    }
    std::string name = key.name;
    if (section.drops_auto) {
      Dropped(key, path, who, &finding);
    } else if (key.auto_effect == "crash") {
      finding.severity = Severity::kError;
      finding.rule = "auto-not-a-number";
      finding.message = absl::StrFormat(
          "\"%s\": \"auto\" stays the string \"auto\" (%s), which fails where "
          "a number is needed.",
          path, who);
      finding.change = "write the number";
    } else if (key.auto_effect == "truthy") {
      finding.severity = Severity::kWarning;
      finding.rule = "auto-is-true";
      finding.message = absl::StrFormat(
          "\"%s\": \"auto\" stays the string \"auto\" (%s), and a non-empty "
          "string counts as true.",
          path, who);
      finding.change = "write true or false";
    } else {
      finding.message = absl::StrFormat(
          "\"%s\": \"auto\" is not replaced by DeepSpeed (%s).", path, who);
    }
    findings_->push_back(std::move(finding));
  }

  void Dropped(const KeyRule& key, const std::string& path,
               const std::string& who, Finding* finding) {
    std::string value = ShowScalar(key.default_value);
    const double* number = std::get_if<double>(&key.default_value);
    std::string cost;
    if (number != nullptr && key.name == "sub_group_size") {
      cost = " elements";  // SubGroup says what they cost
    } else if (number != nullptr && key.counts_elements) {
      cost = absl::StrCat(" elements = ", ShowBytes(*number * 2),
                          " of 16-bit values");
    }
    if (std::holds_alternative<std::monostate>(key.default_value)) {
      value = "as if the key were not there";
    }
    finding->message = absl::StrFormat(
        "\"%s\": \"auto\" is dropped (%s); DeepSpeed uses its default, %s%s.",
        path, who, value, cost);
    if (key.name == "enabled") {
      finding->severity = Severity::kWarning;
      finding->change = "write true or false";
    }
    if (key.counts_elements && number != nullptr) {
      finding->severity = Severity::kWarning;
      Sizes(key, finding);
    }
  }

  void Sizes(const KeyRule& key, Finding* finding) {
    int64_t hidden = view_.options().hidden_size;
    Settings settings = ReadSettings(view_);
    if (key.name == "sub_group_size") {
      SubGroup(settings, finding);
    } else if (key.name == "reduce_bucket_size") {
      finding->bytes = settings.reduce_bucket_size * 2;
      finding->change =
          hidden > 0 ? absl::StrFormat(
                           "%d (hidden size squared, what HF "
                           "Trainer would write)",
                           hidden * hidden)
                     : "a number: hidden size squared is what HF Trainer "
                       "would write (16777216 for 4096)";
      if (hidden > 0 && hidden * hidden < settings.reduce_bucket_size) {
        finding->saving_bytes =
            2 * (settings.reduce_bucket_size - hidden * hidden);
      }
    } else {
      finding->change = "write the number you want";
    }
  }

  // 4 S for the gradient buffer and, with torch's own Adam, temporaries.
  void SubGroup(const Settings& settings, Finding* finding) {
    bool fused = absl::StrContains(settings.optimizer, "fused") ||
                 settings.optimizer == "adam" || settings.optimizer == "adamw";
    bool old_torch = view_.options().torch_version < Version{2, 1, 0};
    int64_t factor = 4 + (fused ? 0 : old_torch ? 8 : 4);
    int64_t size = settings.sub_group_size;
    if (view_.options().params > 0) {
      size = std::min(size, view_.options().params / settings.partitions());
    }
    finding->bytes = size * factor;
    finding->message += absl::StrFormat(
        " Building the optimizer and every step need %s above the model "
        "states.",
        ShowBytes(static_cast<double>(size * factor)));
    finding->change = absl::StrFormat("%d", kModestSubGroup);
    if (size > kModestSubGroup) {
      finding->saving_bytes = (size - kModestSubGroup) * factor;
    }
  }

  const ConfigView& view_;
  Launcher launcher_;
  std::vector<Finding>* findings_;
};

}  // namespace

Launcher TellLauncher(const ConfigView& view) {
  if (view.options().launcher != Launcher::kUnknown) {
    return view.options().launcher;
  }
  for (const char* path :
       {"train_batch_size", "train_micro_batch_size_per_gpu",
        "gradient_accumulation_steps", "gradient_clipping",
        "optimizer.params.lr", "optimizer.params.betas", "optimizer.params.eps",
        "optimizer.params.weight_decay", "scheduler.params.warmup_max_lr",
        "scheduler.params.warmup_num_steps", "scheduler.params.total_num_steps",
        "fp16.enabled", "bf16.enabled"}) {
    if (view.IsAuto(path)) return Launcher::kHfTrainer;
  }
  return Launcher::kUnknown;
}

void CheckAuto(const ConfigView& view, Launcher launcher,
               std::vector<Finding>* findings) {
  AutoWalker(view, launcher, findings).Walk(view.root(), "");
}

}  // namespace dstrace::deepspeed
