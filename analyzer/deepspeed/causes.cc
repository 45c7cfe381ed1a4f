// SPDX-License-Identifier: Apache-2.0
#include "analyzer/deepspeed/causes.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "analyzer/deepspeed/evidence.h"

namespace dstrace::deepspeed {
namespace {

constexpr int64_t kGib = int64_t{1} << 30;
constexpr int64_t kModestSubGroup = 100000000;

Finding Make(Severity severity, const char* rule, int64_t bytes) {
  Finding finding;
  finding.severity = severity;
  finding.rule = rule;
  finding.bytes = bytes;
  return finding;
}

// The same run with a sub_group_size of 1e8, and with FusedAdam.
ExpectedMemory WithSmallSubGroup(const MemoryInputs& inputs) {
  MemoryInputs changed = inputs;
  changed.settings.sub_group_size =
      std::min(changed.settings.sub_group_size, kModestSubGroup);
  return ExpectMemory(changed);
}

ExpectedMemory WithFusedAdam(const MemoryInputs& inputs) {
  MemoryInputs changed = inputs;
  changed.optimizer = OptimizerKind::kFusedAdam;
  return ExpectMemory(changed);
}

bool InOptimizer(const std::vector<std::string>& stack) {
  switch (ClassifyStack(stack)) {
    case Tag::kOptimizerTemporaries:
    case Tag::kAdamStates:
    case Tag::kGradientBuffer:
      return true;
    default:
      return false;
  }
}

std::string SubGroupText(const Settings& settings) {
  return settings.sub_group_size_written
             ? absl::StrFormat("sub_group_size is %d", settings.sub_group_size)
             : absl::StrFormat("sub_group_size is DeepSpeed's default, %d",
                               settings.sub_group_size);
}

void OomInOptimizer(const CauseInputs& in, const MeasuredOom& oom,
                    Finding* finding) {
  const Settings& settings = in.inputs.settings;
  bool initialize = HasFunction(oom.stack, "initialize_optimizer_states");
  finding->rule = "oom-optimizer-temporaries";
  finding->place.key = "zero_optimization.sub_group_size";
  finding->message = absl::StrFormat(
      "out of memory in the optimizer step%s (%s): the request was %s = %d "
      "fp32 values.",
      initialize ? " of initialize_optimizer_states" : "",
      TagName(ClassifyStack(oom.stack)), ShowGib(oom.request), oom.request / 4);
  if (settings.stage != 3 || in.expected.params <= 0) return;
  const ExpectedMemory& now = in.expected;
  int64_t peak = initialize ? now.initialize_peak : now.step_peak;
  ExpectedMemory small = WithSmallSubGroup(in.inputs);
  int64_t small_peak = initialize ? small.initialize_peak : small.step_peak;
  absl::StrAppend(&finding->message, " ", SubGroupText(settings),
                  "; each sub-group needs ", 4 + now.temporaries_per_element,
                  " bytes an element beside the states. Expected peak ",
                  ShowGib(peak), ".");
  finding->bytes = (4 + now.temporaries_per_element) * now.sub_group_elements;
  if (small_peak < peak) {
    finding->change =
        absl::StrFormat("\"sub_group_size\": %d (expected peak %s)",
                        kModestSubGroup, ShowGib(small_peak));
    finding->saving_bytes = peak - small_peak;
  }
  if (now.temporaries_per_element > 0) {
    ExpectedMemory fused = WithFusedAdam(in.inputs);
    absl::StrAppend(
        &finding->change, finding->change.empty() ? "" : ", or ",
        "FusedAdam (expected peak ",
        ShowGib(initialize ? fused.initialize_peak : fused.step_peak), ")");
  }
  if (oom.limit && small_peak > *oom.limit) {
    absl::StrAppend(&finding->change,
                    finding->change.empty() ? ""
                                            : "; that alone does not "
                                              "fit, ",
                    "offload_optimizer or more GPUs are needed");
  }
}

}  // namespace

void FindOom(const CauseInputs& in, std::vector<Finding>* findings) {
  if (!in.measured.oom) return;
  const MeasuredOom& oom = *in.measured.oom;
  Finding finding = Make(Severity::kError, "oom", oom.request);
  if (InOptimizer(oom.stack)) {
    OomInOptimizer(in, oom, &finding);
  } else {
    finding.message = absl::StrFormat(
        "out of memory in the %s phase (%s): the request was %s.",
        PhaseName(PhaseOfStack(oom.stack)), TagName(ClassifyStack(oom.stack)),
        ShowGib(oom.request));
  }
  std::string state;
  if (oom.live) absl::StrAppend(&state, ShowGib(*oom.live), " alive, ");
  if (oom.reserved) {
    absl::StrAppend(&state, ShowGib(*oom.reserved), " reserved, ");
  }
  if (oom.limit) absl::StrAppend(&state, "limit ", ShowGib(*oom.limit), ", ");
  finding.evidence.push_back(absl::StrCat(
      state, "request ", ShowGib(oom.request), ": ", ShowStack(oom.stack)));
  findings->push_back(std::move(finding));
}

namespace {

void ModuleApply(const CauseInputs& in, Finding* finding) {
  finding->rule = "module-apply-regather";
  finding->place.key = "zero_optimization.override_module_apply";
  finding->message = absl::StrFormat(
      "%s that torch keeps after loading were taken by the patched "
      "torch.nn.Module.apply: an outer zero.Init or MiCS_Init was still open "
      "while the checkpoint loaded, so every parameter was gathered to full "
      "size once more.",
      ShowGib(*finding->bytes));
  finding->change =
      in.inputs.settings.version < Version{0, 10, 1}
          ? "load without the outer context; HfDeepSpeedConfig alone is enough"
          : "load without the outer context (HfDeepSpeedConfig alone is "
            "enough), or set \"override_module_apply\": false";
  finding->source =
      "runtime/zero/partition_parameters.py:359-420, 475 (v0.10.1)";
}

void OtherCache(const TagGroup& group, Finding* finding) {
  finding->rule = group.tag == Tag::kConstruction ? "construction-cache"
                  : group.tag == Tag::kCheckpointGather
                      ? "checkpoint-gather-cache"
                      : "allocator-cache";
  finding->message = absl::StrFormat(
      "%s that torch keeps after loading come from: %s. No tensor is in "
      "them.",
      ShowGib(group.bytes), TagName(group.tag));
  finding->change =
      "torch.cuda.empty_cache() after loading (deepspeed.initialize does it "
      "too)";
}

std::optional<int64_t> CachedAfterLoad(const Measured& measured) {
  const MeasuredPhase* load = measured.Find(Phase::kLoad);
  if (load != nullptr && load->reserved && load->live) {
    return *load->reserved - *load->live;
  }
  return std::nullopt;
}

}  // namespace

void FindLoadCache(const CauseInputs& in, std::vector<Finding>* findings) {
  std::vector<TagGroup> groups =
      GroupRows(in.measured, Phase::kLoad, RowKind::kCached);
  int64_t by_rows = 0;
  for (const TagGroup& group : groups) by_rows += group.bytes;
  int64_t cached = CachedAfterLoad(in.measured).value_or(by_rows);
  if (cached < kGib) return;
  const MeasuredPhase* load = in.measured.Find(Phase::kLoad);
  for (size_t i = 0; i < groups.size(); ++i) {
    const TagGroup& group = groups[i];
    bool regather = group.tag == Tag::kModuleApplyGather;
    // The re-gather is a cause only where it dominates; a small rest of it
    // in a correct set-up would send people the wrong way.
    if (regather ? i != 0 : group.bytes * 10 < cached) continue;
    if (group.bytes < kGib / 4) continue;
    Finding finding = Make(Severity::kWarning, "", group.bytes);
    if (regather) {
      ModuleApply(in, &finding);
    } else {
      OtherCache(group, &finding);
    }
    finding.saving_bytes = group.bytes;
    finding.evidence = ShowRows(group);
    if (regather && load != nullptr && load->stream_pending) {
      finding.evidence.push_back(
          absl::StrCat(ShowGib(*load->stream_pending),
                       " were free but waited for a stream (record_stream)"));
    }
    findings->push_back(std::move(finding));
  }
  if (groups.empty()) {
    Finding finding = Make(Severity::kWarning, "allocator-cache", cached);
    finding.message = absl::StrFormat(
        "torch keeps %s after loading with no tensor in them: allocator "
        "cache, not model states.",
        ShowGib(cached));
    finding.change = "torch.cuda.empty_cache() after loading";
    finding.saving_bytes = cached;
    finding.evidence.push_back(absl::StrFormat(
        "end of load: %s reserved, %s alive",
        ShowGib(load->reserved.value_or(0)), ShowGib(load->live.value_or(0))));
    findings->push_back(std::move(finding));
  }
}

namespace {

// DeepSpeed starts one collective for each parameter of a module and waits for
// the last of them only; torch 2.8 and newer keeps the buffers of the others.
void UnwaitedGathers(const TagGroup& group, Finding* finding) {
  finding->rule = "unwaited-gathers";
  finding->bytes = group.bytes;
  finding->message = absl::StrFormat(
      "%s of full-size gathers are still alive after loading: of the "
      "collectives that DeepSpeed starts for the parameters of one module it "
      "waits only for the last (launch_handles[-1].wait()), and torch >= 2.8 "
      "keeps the buffers of the others until its watchdog has seen them done "
      "and one more collective runs.",
      ShowGib(group.bytes));
  finding->change =
      "nothing in the config: any collective 0.1 s after loading gives them "
      "back, the first one of deepspeed.initialize or torch.distributed."
      "barrier() after a short sleep";
  finding->saving_bytes = group.bytes;
  finding->source =
      "runtime/zero/partition_parameters.py _allgather_params_coalesced; "
      "torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp shelvesToUnstash_";
}

}  // namespace

void FindLoadLive(const CauseInputs& in, std::vector<Finding>* findings) {
  if (in.expected.params <= 0 || in.inputs.settings.stage != 3) return;
  std::vector<TagGroup> groups =
      GroupRows(in.measured, Phase::kLoad, RowKind::kLive);
  const TagGroup* shards = FindGroup(groups, Tag::kShardedWeights);
  int64_t full = in.inputs.settings.param_bytes * in.expected.params;
  if (shards != nullptr && in.inputs.settings.partitions() > 1 &&
      shards->bytes * 10 >= full * 9) {
    Finding finding = Make(Severity::kError, "not-sharded", shards->bytes);
    finding.message = absl::StrFormat(
        "the weights are not sharded: %s of partitions are alive after "
        "loading, the whole model is %s.",
        ShowGib(shards->bytes), ShowGib(full));
    finding.change =
        "check WORLD_SIZE where mics_shard_size is computed (a shard size of "
        "1 shards nothing)";
    finding.saving_bytes = shards->bytes - in.expected.load_live;
    finding.evidence = ShowRows(*shards);
    findings->push_back(std::move(finding));
    return;
  }
  const MeasuredPhase* load = in.measured.Find(Phase::kLoad);
  if (load == nullptr || !load->live) return;
  int64_t extra = *load->live - in.expected.load_live;
  if (extra * 20 < in.expected.load_live || extra < kGib / 4) return;
  Finding finding = Make(Severity::kWarning, "live-above-expected", extra);
  finding.message = absl::StrFormat(
      "%s of tensors are alive after loading, %s more than the shards.",
      ShowGib(*load->live), ShowGib(extra));
  const TagGroup* gathers = FindGroup(groups, Tag::kCheckpointGather);
  bool unwaited =
      gathers != nullptr && gathers->bytes * 2 > extra &&
      HasFunction(gathers->rows.front()->stack, "_allgather_params_coalesced");
  if (unwaited) UnwaitedGathers(*gathers, &finding);
  finding.evidence.push_back(
      absl::StrFormat("end of load: %s alive, %s expected",
                      ShowGib(*load->live), ShowGib(in.expected.load_live)));
  for (const TagGroup& group : groups) {
    bool explained = group.tag == Tag::kShardedWeights ||
                     group.tag == Tag::kTiedHead || group.bytes < kGib / 1024;
    if (explained) continue;
    for (std::string& line : ShowRows(group)) {
      finding.evidence.push_back(std::move(line));
    }
  }
  findings->push_back(std::move(finding));
}

void FindSubGroup(const CauseInputs& in, std::vector<Finding>* findings) {
  if (in.measured.oom || in.inputs.settings.stage != 3) return;
  // The optimizer works on a whole sub-group where it makes its states first.
  bool late = in.inputs.settings.states_at_first_step;
  Phase where = late ? Phase::kStep : Phase::kInitialize;
  std::vector<TagGroup> groups = GroupRows(in.measured, where, RowKind::kPeak);
  Finding finding = Make(Severity::kWarning, "sub-group-temporaries", 0);
  int64_t bytes = 0;
  for (Tag tag : {Tag::kOptimizerTemporaries, Tag::kGradientBuffer}) {
    const TagGroup* group = FindGroup(groups, tag);
    if (group == nullptr) continue;
    bytes += group->bytes;
    for (std::string& line : ShowRows(*group)) {
      finding.evidence.push_back(std::move(line));
    }
  }
  ExpectedMemory small = WithSmallSubGroup(in.inputs);
  int64_t peak = late ? in.expected.step_peak : in.expected.initialize_peak;
  int64_t saving = in.expected.params > 0
                       ? peak - (late ? small.step_peak : small.initialize_peak)
                       : 0;
  const MeasuredPhase* phase = in.measured.Find(where);
  if (phase != nullptr && phase->peak) peak = *phase->peak;
  if (bytes * 10 < peak || bytes < kGib || saving < kGib) return;
  finding.bytes = bytes;
  finding.place.key = "zero_optimization.sub_group_size";
  finding.message = absl::StrFormat(
      "%s of the %s peak of %s are buffers of one sub-group; %s.",
      ShowGib(bytes), ShowGib(peak),
      late ? "the optimizer's step" : "deepspeed.initialize",
      SubGroupText(in.inputs.settings));
  finding.change = absl::StrFormat("\"sub_group_size\": %d", kModestSubGroup);
  finding.saving_bytes = saving;
  finding.source = late ? "runtime/zero/stage3.py:1846 (v0.13.2)"
                        : "runtime/zero/stage3.py:897 (v0.10.1)";
  findings->push_back(std::move(finding));
}

void FindCommunicators(const CauseInputs& in, std::vector<Finding>* findings) {
  const Measured& measured = in.measured;
  if (!measured.nccl_bytes || *measured.nccl_bytes < kGib / 2) return;
  const Settings& settings = in.inputs.settings;
  Finding finding = Make(Severity::kNote, "nccl-memory", *measured.nccl_bytes);
  finding.message = absl::StrFormat("NCCL holds %s outside torch",
                                    ShowGib(*measured.nccl_bytes));
  finding.evidence.push_back(
      absl::StrCat(ShowGib(*measured.nccl_bytes), " under libnccl"));
  bool redundant = settings.stage == 3 && settings.world_size > 1 &&
                   settings.mics_shard_size == settings.world_size;
  if (measured.communicators && *measured.communicators > 0) {
    absl::StrAppend(&finding.message, " in ", *measured.communicators,
                    " communicators");
    if (redundant && *measured.communicators > 1) {
      finding.severity = Severity::kWarning;
      finding.place.key = "zero_optimization.mics_shard_size";
      finding.message +=
          ", one of which MiCS opens for a group equal to the world";
      finding.change = "remove mics_shard_size";
      finding.saving_bytes = *measured.nccl_bytes / *measured.communicators;
    }
  }
  finding.message += ".";
  findings->push_back(std::move(finding));
}

}  // namespace dstrace::deepspeed
