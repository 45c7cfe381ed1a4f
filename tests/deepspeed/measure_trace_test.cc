// SPDX-License-Identifier: Apache-2.0
#include "analyzer/deepspeed/measure_trace.h"

#include <gtest/gtest.h>

#include "analyzer/deepspeed/evidence.h"
#include "analyzer/deepspeed/verdict.h"
#include "tests/deepspeed/test_files.h"
#include "tests/support/vector_source.h"

namespace dstrace::deepspeed {
namespace {

using model::DeviceKind;
using model::StackId;

constexpr uint32_t kGpu = model::kTorchCuda << 8;
constexpr int64_t kMib = 1 << 20;

struct PythonFrame {
  const char* function;
  const char* file;
};

const PythonFrame kMain{"main", "/home/ada/train.py"};
const PythonFrame kInitialize{"initialize", "/site/deepspeed/__init__.py"};
const PythonFrame kStates{"initialize_optimizer_states",
                          "/site/deepspeed/runtime/zero/stage3.py"};
const PythonFrame kStep{"_optimizer_step",
                        "/site/deepspeed/runtime/zero/stage3.py"};
const PythonFrame kAdam{"_multi_tensor_adamw", "/site/torch/optim/adamw.py"};
const PythonFrame kPartition{
    "_partition_param", "/site/deepspeed/runtime/zero/partition_parameters.py"};
const PythonFrame kInit{"_zero_init_param",
                        "/site/deepspeed/runtime/zero/partition_parameters.py"};

// A trace with Python frames above one native frame of torch's.
class Trace {
 public:
  StackId Stack(const std::vector<PythonFrame>& frames) {
    StackId id = source_.Stack({"libc10_cuda.so"});
    model::Stacks& stacks = source_.mutable_facts().stacks;
    for (const PythonFrame& one : frames) {
      model::Frame frame;
      frame.kind = model::Frame::Kind::kPython;
      frame.name = one.function;
      frame.file = one.file;
      frame.line = 1;
      stacks.stacks[id].frames.push_back(
          static_cast<uint32_t>(stacks.frames.size()));
      stacks.frames.push_back(frame);
    }
    return id;
  }
  void Segment(uint64_t address, uint64_t size, StackId stack) {
    source_.Add(model::DeviceEvent{.time = ++time_,
                                   .kind = DeviceKind::kAlloc,
                                   .stack = stack,
                                   .device = 0,
                                   .address = address,
                                   .size = size});
  }
  void Return(uint64_t address) {
    source_.Add(model::DeviceEvent{.time = ++time_,
                                   .kind = DeviceKind::kFree,
                                   .device = 0,
                                   .address = address});
  }
  void Alloc(uint64_t address, uint64_t size, StackId stack) {
    source_.Add(model::TensorAlloc{.time = ++time_,
                                   .address = address,
                                   .size = size,
                                   .stack = stack,
                                   .torch_device = kGpu});
  }
  void Free(uint64_t address, uint64_t size) {
    source_.Add(model::TensorFree{.time = ++time_,
                                  .address = address,
                                  .size = size,
                                  .torch_device = kGpu});
  }
  void RunOut(uint64_t size, uint64_t live, uint64_t reserved, StackId stack) {
    source_.Add(model::OutOfMemory{.time = ++time_,
                                   .torch_device = kGpu,
                                   .size = size,
                                   .allocated = live,
                                   .reserved = reserved,
                                   .stack = stack});
  }
  absl::StatusOr<TraceMeasure> Measure(
      std::optional<int> device = std::nullopt) const {
    const model::Stacks& stacks = source_.facts().stacks;
    std::vector<model::FrameText> words(stacks.frames.size());
    for (size_t i = 0; i < words.size(); ++i) {
      const model::Frame& frame = stacks.frames[i];
      words[i].python = frame.kind == model::Frame::Kind::kPython;
      words[i].function = frame.name;
      words[i].file = frame.file;
      words[i].line = frame.line;
    }
    return MeasureTrace(source_, words, device);
  }

 private:
  testing::VectorSource source_;
  uint64_t time_ = 0;
};

TEST(MeasureTrace, KeepsTheCacheOfLoadingThatEmptyCacheGaveBack) {
  Trace trace;
  StackId shard = trace.Stack({kPartition, kInit, kMain});
  trace.Segment(0x1000000, 20 * kMib, shard);
  trace.Alloc(0x1000000, 8 * kMib, shard);
  trace.Segment(0x9000000, 64 * kMib, shard);
  trace.Alloc(0x9000000, 64 * kMib, shard);
  trace.Free(0x9000000, 64 * kMib);
  trace.Return(0x9000000);  // torch.cuda.empty_cache()

  auto measure = trace.Measure();

  ASSERT_TRUE(measure.ok()) << measure.status();
  const MeasuredPhase* load = measure->measured.Find(Phase::kLoad);
  ASSERT_NE(load, nullptr);
  EXPECT_EQ(load->live, 8 * kMib);
  EXPECT_EQ(load->reserved, 84 * kMib);
  EXPECT_EQ(load->peak, 72 * kMib);
  int64_t cached = 0;
  for (const MeasuredRow& row : measure->measured.rows) {
    if (row.kind == RowKind::kCached) cached += row.bytes;
  }
  EXPECT_EQ(cached, 76 * kMib);
}

TEST(MeasureTrace, LoadEndsWhereInitializeBegins) {
  Trace trace;
  StackId shard = trace.Stack({kPartition, kInit, kMain});
  StackId buffer = trace.Stack({kStates, kInitialize, kMain});
  trace.Alloc(0x1000, 100, shard);
  trace.Alloc(0x2000, 1000, buffer);
  trace.Free(0x2000, 1000);
  trace.Alloc(0x3000, 10, buffer);

  auto measure = trace.Measure();

  ASSERT_TRUE(measure.ok());
  EXPECT_EQ(measure->measured.Find(Phase::kLoad)->live, 100);
  EXPECT_EQ(measure->measured.Find(Phase::kLoad)->peak, 100);
  const MeasuredPhase* initialize = measure->measured.Find(Phase::kInitialize);
  ASSERT_NE(initialize, nullptr);
  EXPECT_EQ(initialize->peak, 1100);
  EXPECT_EQ(initialize->live, 110);
  EXPECT_TRUE(measure->initialize);
}

// create_reduce_and_remove_grad_hooks gathers the last parameter, frees it and
// allocates nothing more.
TEST(MeasureTrace, WhatInitializeFreesLastIsNotAliveAtItsEnd) {
  Trace trace;
  StackId shard = trace.Stack({kPartition, kInit, kMain});
  StackId buffer = trace.Stack({kStates, kInitialize, kMain});
  StackId script = trace.Stack({kMain});
  trace.Alloc(0x1000, 100, shard);
  trace.Alloc(0x2000, 1000, buffer);
  trace.Free(0x2000, 1000);
  trace.Alloc(0x9000, 7, script);

  auto measure = trace.Measure();

  ASSERT_TRUE(measure.ok());
  const MeasuredPhase* initialize = measure->measured.Find(Phase::kInitialize);
  ASSERT_NE(initialize, nullptr);
  EXPECT_EQ(initialize->live, 100);
  EXPECT_EQ(initialize->peak, 1100);
}

TEST(MeasureTrace, TellsWhereTheOptimizersStatesAreMade) {
  const PythonFrame group{"_init_group", "/site/torch/optim/adamw.py"};
  const PythonFrame take{"_take_model_step", "/site/deepspeed/engine.py"};
  const PythonFrame run{"forward", "/home/ada/model.py"};
  for (bool late : {false, true}) {
    Trace trace;
    StackId shard = trace.Stack({kPartition, kInit, kMain});
    StackId buffer = trace.Stack({kStates, kInitialize, kMain});
    StackId states = late ? trace.Stack({group, kStep, take, kMain})
                          : trace.Stack({group, kStep, kStates, kInitialize});
    StackId adam = trace.Stack({kAdam, kStep, take, kMain});
    StackId forward = trace.Stack({run, kMain});
    trace.Alloc(0x1000, 100, shard);
    trace.Alloc(0x2000, 1000, buffer);
    trace.Alloc(0x4000, 8000, states);
    trace.Alloc(0x8000, 40, adam);
    trace.Free(0x8000, 40);
    trace.Alloc(0x9000, 5, forward);

    auto measure = trace.Measure();

    ASSERT_TRUE(measure.ok());
    EXPECT_EQ(measure->states_at_first_step, late);
    EXPECT_EQ(measure->measured.Find(Phase::kInitialize)->live,
              late ? 1100 : 9100);
    EXPECT_EQ(measure->measured.Find(Phase::kStep)->end_live, 9100);
    auto rows = BeyondStanding(measure->measured, Phase::kStep, RowKind::kLive);
    auto groups = GroupRows(rows, Phase::kStep, RowKind::kLive);
    const TagGroup* made = FindGroup(groups, Tag::kAdamStates);
    ASSERT_NE(made, nullptr);
    EXPECT_EQ(made->bytes, late ? 8000 : 0);
  }
}

TEST(MeasureTrace, AnOutOfMemoryInTheFirstStepNamesTemporariesAndSubGroup) {
  Trace trace;
  StackId shard = trace.Stack({kPartition, kInit, kMain});
  StackId buffer = trace.Stack({kStates, kInitialize, kMain});
  StackId adam = trace.Stack({kAdam, kStep, kStates, kInitialize, kMain});
  trace.Alloc(0x1000, 4 * kMib, shard);
  trace.Alloc(0x800000, 4 * kMib, buffer);
  trace.RunOut(4000000000, 27000 * kMib, 28000 * kMib, adam);
  auto measure = trace.Measure();
  ASSERT_TRUE(measure.ok());

  CheckOptions options;
  options.version = {0, 10, 1};
  options.world_size = 1;
  options.params = 2030000000;
  ConfigReport config = CheckConfig(
      "{\"train_batch_size\": 1, \"fp16\": {\"enabled\": true}, "
      "\"zero_optimization\": {\"stage\": 3, \"sub_group_size\": \"auto\"}}",
      options);
  MemoryInputs inputs;
  inputs.settings = config.settings;
  inputs.params = options.params;
  Verdict verdict =
      Judge(config, inputs, ExpectMemory(inputs), measure->measured);

  EXPECT_EQ(verdict.validity, Validity::kNotValid);
  ASSERT_FALSE(verdict.findings.empty());
  const Finding& first = verdict.findings[0];
  EXPECT_EQ(first.rule, "oom-optimizer-temporaries");
  EXPECT_NE(first.message.find("initialize_optimizer_states"),
            std::string::npos);
  EXPECT_NE(first.message.find("3.73 GiB"), std::string::npos);
  EXPECT_NE(first.change.find("\"sub_group_size\": 100000000"),
            std::string::npos);
  EXPECT_NE(first.evidence[0].find("_multi_tensor_adamw"), std::string::npos);
  EXPECT_EQ(measure->measured.Find(Phase::kInitialize)->live, std::nullopt);
}

TEST(MeasureTrace, TellsTheTiedHeadFromTheEmbeddingByItsDepth) {
  Measured measured;
  for (const char* model : {"Bloom.__init__ (m.py:1)", "x (m.py:1)"}) {
    MeasuredRow row;
    row.phase = Phase::kLoad;
    row.tag = Tag::kShardedWeights;
    row.bytes = 980 * kMib;
    row.stack = {"_partition_param (p.py:1)", model,
                 "BloomForCausalLM.__init__ (m.py:9)"};
    measured.rows.push_back(row);
  }

  TagTiedHead(980 * kMib, &measured);

  EXPECT_EQ(measured.rows[0].tag, Tag::kShardedWeights);
  EXPECT_EQ(measured.rows[1].tag, Tag::kTiedHead);
}

TEST(MeasureTrace, SaysWhenThereIsNoTensorOnTheGpu) {
  Trace trace;
  trace.Alloc(0x1000, 100, trace.Stack({kMain}));

  EXPECT_FALSE(trace.Measure(3).ok());
  EXPECT_EQ(trace.Measure(3).status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace dstrace::deepspeed
