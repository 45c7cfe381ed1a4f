// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_TESTS_REPORT_SAMPLE_RUNS_H_
#define DSTRACE_TESTS_REPORT_SAMPLE_RUNS_H_

// Runs made by hand: what a report must say about them is known.

#include <initializer_list>
#include <string>

#include "analyzer/model/run.h"

namespace dstrace::testing {

inline constexpr uint64_t kMiB = 1ull << 20;
inline constexpr uint64_t kSecond = 1'000'000'000;

model::Frame Python(const std::string& name, const std::string& file,
                    uint32_t line);
model::Frame Native(const std::string& symbol, int module);

// Adds a stack (innermost frame first) and returns its id.
model::StackId AddStack(model::Stacks* stacks,
                        std::initializer_list<model::Frame> frames);

// ZeRO-3 loading under an outer MiCS_Init: 32 GiB reserved, 7.5 GiB live.
model::Run RegatherRun();
// deepspeed.initialize that runs out of memory in Adam's temporaries.
model::Run OutOfMemoryRun();
// Nothing but a header and an end.
model::Run EmptyRun();
// Tensors only: no driver event, no sample, no Python frame, killed.
model::Run TensorsOnlyRun();
// NCCL and a plain program without torch, still running, with losses.
model::Run NoTorchRun();
// The same with a communicator, a graph and managed memory.
model::Run GroupsRun();

}  // namespace dstrace::testing

#endif  // DSTRACE_TESTS_REPORT_SAMPLE_RUNS_H_
