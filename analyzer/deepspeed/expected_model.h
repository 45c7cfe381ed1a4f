// SPDX-License-Identifier: Apache-2.0
//
// How ExpectMemory() computes: the model of one rank, phase by phase. What all
// stages share is in expected_memory.cc, stage 3 in expected_stage3.cc.
// Internal to the room. Not thread-safe: one Run() of one object.
#ifndef DSTRACE_ANALYZER_DEEPSPEED_EXPECTED_MODEL_H_
#define DSTRACE_ANALYZER_DEEPSPEED_EXPECTED_MODEL_H_

#include <cstdint>
#include <string>
#include <vector>

#include "analyzer/deepspeed/expected_memory.h"

namespace dstrace::deepspeed {

// ceil(value / by)
inline int64_t CeilDivide(int64_t value, int64_t by) {
  return (value + by - 1) / by;
}

class ExpectedModel {
 public:
  // `inputs` outlives the model.
  explicit ExpectedModel(const MemoryInputs& inputs);

  ExpectedMemory Run();

 private:
  ExpectedRow& Add(Phase phase, Tag tag, const char* name, int64_t bytes,
                   bool persistent, std::string formula, std::string code);
  // Where the states are made: in initialize, or in the first step.
  void AddStates(int64_t bytes, const char* first_code);
  // A part that has S in it.
  void AddSubGroup(Phase phase, Tag tag, const char* name, int64_t per_element,
                   std::string code);
  // n and S. A sub-group is closed by the partition that reaches
  // sub_group_size, so it may exceed it by nearly one partition.
  void Shards();
  // What the states and temporaries of the optimizer's first step need at
  // most: it takes the sub-groups one after the other. Without the sizes of
  // the parameters the last one counts as a full one.
  [[nodiscard]] int64_t FirstStep(int64_t temporaries) const;
  // Buffers alive at once while one parameter is gathered. Before 0.12.4 torch
  // makes a third one, a flattened copy, and drops it before DeepSpeed makes
  // its last: it stays in the allocator.
  [[nodiscard]] int64_t LiveGather() const;
  // Full-size buffers that one gather of one parameter needs.
  [[nodiscard]] int GatherBuffers() const;
  [[nodiscard]] int64_t TiedHead() const;
  void Load();
  void InitializeStage3();
  void TrainStage3();
  void InitializeBelow3();
  void TrainBelow3();
  void Communicators();
  void Estimate();

  const MemoryInputs& in_;
  const Settings& set_;
  ExpectedMemory out_;
  std::vector<int64_t> sub_groups_;  // of one rank, where sizes are known
  int64_t partitions_ = 1;
  int64_t width_ = 2;
  bool states_on_gpu_ = true;
  bool weights_on_gpu_ = true;
  bool states_late_ = true;  // Adam's states are made in the first step
  bool old_names_ = true;
};

}  // namespace dstrace::deepspeed

#endif  // DSTRACE_ANALYZER_DEEPSPEED_EXPECTED_MODEL_H_
