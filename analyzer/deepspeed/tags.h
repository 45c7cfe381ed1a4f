// SPDX-License-Identifier: Apache-2.0
//
// What an allocation is for, told from its stack. The names of functions are
// those of DeepSpeed 0.10 to 0.19 and torch 2. Thread-safety: pure functions.
#ifndef DSTRACE_ANALYZER_DEEPSPEED_TAGS_H_
#define DSTRACE_ANALYZER_DEEPSPEED_TAGS_H_

#include <string>
#include <string_view>
#include <vector>

namespace dstrace::deepspeed {

enum class Phase { kLoad, kInitialize, kForward, kBackward, kStep, kUnknown };

enum class Tag {
  kShardedWeights,        // persistent partitions made while loading
  kModuleApplyGather,     // gathers by the patched torch.nn.Module.apply
  kCheckpointGather,      // gathers around the checkpoint's tensors
  kConstruction,          // full-size tensors before they are partitioned
  kFlatWeights,           // the contiguous 16-bit buffer
  kMasterWeights,         // fp32 copies
  kGradientBuffer,        // initialize_optimizer_states' fp32 gradients
  kAdamStates,            // exp_avg, exp_avg_sq
  kOptimizerTemporaries,  // inside the optimizer's step
  kGradients,             // buckets and gradient partitions
  kGatheredParameters,    // forward and backward
  kActivations,
  kNccl,
  kContext,
  kTiedHead,  // a detached copy of the output head
  kOther,
};

const char* TagName(Tag tag);  // for people: "sharded weights"
const char* TagId(Tag tag);    // for machines: "sharded_weights"
const char* PhaseName(Phase phase);

// Frames as strings, innermost first; a frame may carry a path and a line
// ("_partition_param (.../partition_parameters.py:1381)").
Tag ClassifyStack(const std::vector<std::string>& frames);

// The phase in which the stack runs; kUnknown when no frame tells.
Phase PhaseOfStack(const std::vector<std::string>& frames);

// True when a frame's function is the name (its last component).
bool HasFunction(const std::vector<std::string>& frames, std::string_view name);

}  // namespace dstrace::deepspeed

#endif  // DSTRACE_ANALYZER_DEEPSPEED_TAGS_H_
