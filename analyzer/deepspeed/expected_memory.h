// SPDX-License-Identifier: Apache-2.0
//
// The memory one GPU should need, phase by phase, from the config and the
// model, each part with the function that allocates it; and what offloading
// puts on the host for it. Activations, the
// allocator's cache, NCCL and the CUDA context are not in it: those are
// measured. Thread-safety: pure functions. Units: bytes on one GPU.
#ifndef DSTRACE_ANALYZER_DEEPSPEED_EXPECTED_MEMORY_H_
#define DSTRACE_ANALYZER_DEEPSPEED_EXPECTED_MEMORY_H_

#include <cstdint>
#include <string>
#include <vector>

#include "analyzer/deepspeed/model_shape.h"
#include "analyzer/deepspeed/settings.h"
#include "analyzer/deepspeed/tags.h"
#include "analyzer/deepspeed/version.h"

namespace dstrace::deepspeed {

enum class OptimizerKind {
  kTorchAdam,  // torch.optim.Adam or AdamW: temporaries in every step
  kFusedAdam,  // DeepSpeed's or apex's FusedAdam: none
};

struct MemoryInputs {
  Settings settings;
  int64_t params = 0;  // used where shape is empty
  ModelShape shape;
  OptimizerKind optimizer = OptimizerKind::kTorchAdam;
  Version torch_version{2, 11, 0};
};

enum class Where { kDevice, kPinnedHost, kHost };

struct ExpectedRow {
  Phase phase = Phase::kLoad;
  Tag tag = Tag::kOther;
  std::string name;
  int64_t bytes = 0;
  bool persistent = false;   // still there when the phase ends
  bool upper_bound = false;  // at most, not exactly
  bool lower_bound = false;  // at least, not exactly
  std::string formula;
  std::string code;  // function (file:line)
  Where where = Where::kDevice;
};

// What DeepSpeed's own estimate_zero*_model_states_mem_needs would print.
struct DeepSpeedEstimate {
  int64_t no_offload = 0;
  int64_t optimizer_offload = 0;
  int64_t both_offload = 0;
  bool largest_layer_known = false;
};

struct ExpectedMemory {
  std::vector<ExpectedRow> rows;
  int64_t params = 0;
  bool sizes_known = false;    // of the single parameters, from a model config
  int64_t shard_elements = 0;  // n: parameters of one rank
  int64_t sub_group_elements = 0;  // S: the largest sub-group of one rank
  // S is only what a sub-group has at least: the parameters' sizes are unknown.
  bool sub_group_at_least = false;
  int64_t temporaries_per_element = 0;  // T / S in bytes
  int64_t load_live = 0;
  int64_t load_peak = 0;
  // Within initialize_optimizer_states; the highest point of initialize is this
  // or what stays at its end.
  int64_t optimizer_build_peak = 0;
  int64_t initialize_peak = 0;
  int64_t initialize_steady = 0;
  int64_t training_peak = 0;  // forward and backward, without activations
  int64_t step_peak = 0;
  int64_t step_steady = 0;  // after the first step
  // Offloaded parts, beside the device's: page-locked host memory after
  // loading and after initialize, and pageable one after the first step.
  int64_t pinned_load = 0;
  int64_t pinned_steady = 0;
  int64_t host_steady = 0;
  int communicators = 0;  // NCCL communicators a rank opens at least
  DeepSpeedEstimate estimate;
  std::vector<std::string> notes;
};

ExpectedMemory ExpectMemory(const MemoryInputs& inputs);

// Adds what `settings` puts on the host: n and S of the memory are known.
void AddHostRows(const Settings& settings, ExpectedMemory* memory);

// The bytes a step's temporaries take per element of the sub-group.
int64_t OptimizerTemporaries(OptimizerKind optimizer,
                             const Version& torch_version);

}  // namespace dstrace::deepspeed

#endif  // DSTRACE_ANALYZER_DEEPSPEED_EXPECTED_MEMORY_H_
