// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "absl/strings/str_format.h"
#include "analyzer/deepspeed/checks.h"

namespace dstrace::deepspeed {
namespace {

constexpr char kTotal[] = "train_batch_size";
constexpr char kMicro[] = "train_micro_batch_size_per_gpu";
constexpr char kSteps[] = "gradient_accumulation_steps";
constexpr char kSource[] = "runtime/config.py:878-942 (v0.10.1)";

// 0: not written, or null.
std::optional<double> Value(const ConfigView& view, const char* key) {
  const JsonMember* member = FindMember(view.root(), key);
  if (member == nullptr || member->value.kind != JsonKind::kNumber) {
    return std::nullopt;
  }
  return member->value.number;
}

class BatchCheck {
 public:
  BatchCheck(const ConfigView& view, std::vector<Finding>* findings)
      : view_(view),
        findings_(findings),
        total_(Value(view, kTotal)),
        micro_(Value(view, kMicro)),
        steps_(Value(view, kSteps)) {
    world_ = view.options().world_size;
    std::optional<double> sequence =
        view.EffectiveNumber("sequence_parallel_size");
    if (sequence && *sequence > 1 && std::fmod(world_, *sequence) == 0) {
      world_ /= *sequence;
    }
  }

  void Run() {
    for (const char* key : {kTotal, kMicro, kSteps}) {
      std::optional<double> value = Value(view_, key);
      if (value && *value <= 0) {
        Add(key, Severity::kError, "batch-not-positive")->message =
            absl::StrFormat("\"%s\" must be greater than 0.", key);
        return;
      }
    }
    if (!total_ && !micro_) {
      Finding* finding = Add("", Severity::kError, "batch-missing");
      finding->message =
          "neither train_batch_size nor train_micro_batch_size_per_gpu is "
          "set; DeepSpeed needs one of them.";
      finding->change = "\"train_micro_batch_size_per_gpu\": 1";
      return;
    }
    if (world_ <= 0 || !total_) return;
    if (micro_ && steps_) {
      Compare(*micro_, *steps_);
    } else if (micro_) {
      double steps = std::floor(std::floor(*total_ / *micro_) / world_);
      Derived(kSteps, *micro_, steps, steps);
    } else {
      double steps = steps_.value_or(1);
      double micro = std::floor(std::floor(*total_ / world_) / steps);
      Derived(kMicro, micro, steps, micro);
    }
  }

 private:
  Finding* Add(const char* key, Severity severity, const char* rule) {
    Finding finding = view_.At(key, severity, rule);
    finding.source = kSource;
    findings_->push_back(std::move(finding));
    return &findings_->back();
  }

  bool Compare(double micro, double steps) {
    if (micro * steps * world_ == *total_) return true;
    Finding* finding = Add(kTotal, Severity::kError, "batch-mismatch");
    finding->message = absl::StrFormat(
        "train_batch_size %g is not micro batch %g x accumulation %g x %g "
        "data-parallel GPUs = %g.",
        *total_, micro, steps, world_, micro * steps * world_);
    finding->change = absl::StrFormat("\"train_batch_size\": %g, or remove it",
                                      micro * steps * world_ > 0
                                          ? micro * steps * world_
                                          : world_ * steps_.value_or(1));
    return false;
  }

  void Derived(const char* key, double micro, double steps, double derived) {
    if (!Compare(micro, steps)) return;
    Add(kTotal, Severity::kNote, "batch-derived")->message = absl::StrFormat(
        "on %g GPUs DeepSpeed derives %s = %g (train_batch_size %g).", world_,
        key, derived, *total_);
  }

  const ConfigView& view_;
  std::vector<Finding>* findings_;
  std::optional<double> total_;
  std::optional<double> micro_;
  std::optional<double> steps_;
  double world_ = 0;
};

}  // namespace

void CheckBatch(const ConfigView& view, Launcher launcher,
                std::vector<Finding>* findings) {
  // Elasticity computes the three itself, and "auto" or a string has its own
  // finding.
  if (view.EffectiveTrue("elasticity.enabled")) return;
  for (const char* key : {kTotal, kMicro, kSteps}) {
    const JsonMember* member = FindMember(view.root(), key);
    if (member != nullptr && member->value.kind == JsonKind::kString) return;
  }
  // HF Trainer and Accelerate put missing batch sizes in.
  bool written = FindMember(view.root(), kTotal) != nullptr ||
                 FindMember(view.root(), kMicro) != nullptr;
  if (!written && launcher != Launcher::kPlain) return;
  BatchCheck(view, findings).Run();
}

}  // namespace dstrace::deepspeed
