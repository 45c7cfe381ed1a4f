// SPDX-License-Identifier: Apache-2.0
//
// The single causes that Judge looks for in a trace. Each appends a finding
// only when its rows are there. Thread-safety: pure functions.
#ifndef DSTRACE_ANALYZER_DEEPSPEED_CAUSES_H_
#define DSTRACE_ANALYZER_DEEPSPEED_CAUSES_H_

#include <vector>

#include "analyzer/deepspeed/verdict.h"

namespace dstrace::deepspeed {

struct CauseInputs {
  const ConfigReport& config;
  const MemoryInputs& inputs;
  const ExpectedMemory& expected;
  const Measured& measured;
};

// Running out of memory: where, for how much, what to change.
void FindOom(const CauseInputs& in, std::vector<Finding>* findings);

// Memory that torch's allocator holds after loading without tensors in it.
void FindLoadCache(const CauseInputs& in, std::vector<Finding>* findings);

// Tensors alive after loading that the model does not explain.
void FindLoadLive(const CauseInputs& in, std::vector<Finding>* findings);

// Buffers of the sub-group size at the peak of initialize.
void FindSubGroup(const CauseInputs& in, std::vector<Finding>* findings);

// NCCL's buffers and a communicator too many.
void FindCommunicators(const CauseInputs& in, std::vector<Finding>* findings);

}  // namespace dstrace::deepspeed

#endif  // DSTRACE_ANALYZER_DEEPSPEED_CAUSES_H_
