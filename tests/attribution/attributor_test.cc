// SPDX-License-Identifier: Apache-2.0
#include "analyzer/attribution/attributor.h"

#include <gtest/gtest.h>

#include <initializer_list>

namespace dstrace::attribution {
namespace {

using model::FrameText;

constexpr char kSite[] = "/opt/py/site-packages/";
constexpr char kUser[] = "/home/ada/train.py";

FrameText Python(const std::string& function, const std::string& file,
                 uint32_t line = 1) {
  FrameText frame;
  frame.python = true;
  frame.function = function;
  frame.file = file;
  frame.line = line;
  return frame;
}

FrameText Library(const std::string& function, const std::string& file) {
  return Python(function, kSite + file);
}

FrameText Native(const std::string& function, const std::string& module) {
  FrameText frame;
  frame.function = function;
  frame.module = module;
  return frame;
}

// The story of one stack, innermost frame first.
struct Told {
  std::string tag, asked_by, via;
  bool user_code;
};

Told Tell(const std::vector<FrameText>& frames,
          const RuleSet& rules = RuleSet::BuiltIn()) {
  model::Stacks stacks;
  stacks.stacks.resize(2);
  for (uint32_t i = 0; i < frames.size(); ++i) {
    stacks.stacks[1].frames.push_back(i);
  }
  Attributor attributor(stacks, frames, rules);
  const Story& story = attributor.Tell(1);
  return {story.rule != nullptr ? story.rule->tag : "", story.asked_by,
          story.via, story.user_code};
}

const FrameText kMain = Python("main", kUser, 40);
const FrameText kInit =
    Library("initialize_optimizer_states", "deepspeed/runtime/zero/stage3.py");
const FrameText kStep =
    Library("_optimizer_step", "deepspeed/runtime/zero/stage3.py");

TEST(Attributor, FindsTheRegatherOfAPatchedApply) {
  const FrameText gather = Library(
      "_allgather_params", "deepspeed/runtime/zero/partition_parameters.py");
  const FrameText apply = Library(
      "wrapped_fn_to_apply", "deepspeed/runtime/zero/partition_parameters.py");
  const Told told = Tell({Native("cudaMalloc", "libcudart.so.13"), gather,
                          apply, Library("apply", "torch/nn/modules/module.py"),
                          Python("load", kUser, 31), kMain});
  EXPECT_EQ(told.tag, "zero3.regather");
  EXPECT_EQ(told.asked_by, "train.py:31 in load");
  EXPECT_EQ(told.via, "wrapped_fn_to_apply -> _allgather_params");
}

TEST(Attributor, FindsTheRegatherUnderItsNewNameAndAPatchedCollective) {
  // The user replaced a collective: that line did not ask for the memory.
  const Told told =
      Tell({Python("all_gather", kUser, 7),
            Library("Init._c.<locals>._allgather_params_sequential",
                    "deepspeed/runtime/zero/partition_parameters.py"),
            Library("apply_with_gather.<locals>.wrapped_fn_to_apply",
                    "deepspeed/runtime/zero/partition_parameters.py"),
            Python("load", kUser, 31)});
  EXPECT_EQ(told.tag, "zero3.regather");
  EXPECT_EQ(told.asked_by, "train.py:31 in load");
}

TEST(Attributor, TellsTheGatherOfACheckpointLoadFromIt) {
  const Told told =
      Tell({Library("_allgather_params_coalesced",
                    "deepspeed/runtime/zero/partition_parameters.py"),
            Library("GatheredParameters.__enter__",
                    "deepspeed/runtime/zero/partition_parameters.py"),
            Library("load", "transformers/modeling_utils.py"), kMain});
  EXPECT_EQ(told.tag, "zero3.load_gather");
  EXPECT_EQ(told.asked_by, "train.py:40 in main");
}

TEST(Attributor, SeparatesTheMemoryOfInitialize) {
  const FrameText adam = Library("Adam.step", "torch/optim/adam.py");
  const auto tag = [&](const FrameText& inner) {
    return Tell({inner, adam, kStep, kInit, kMain}).tag;
  };
  EXPECT_EQ(tag(Library("_init_group", "torch/optim/adamw.py")),
            "zero3.adam_states");
  EXPECT_EQ(tag(Library("_multi_tensor_adam", "torch/optim/adam.py")),
            "zero3.adam_temporaries");
  EXPECT_EQ(tag(Library("_single_tensor_adamw", "torch/optim/adamw.py")),
            "zero3.adam_temporaries");
  EXPECT_EQ(Tell({kInit, kMain}).tag, "zero3.gradient_buffer");
  EXPECT_EQ(Tell({Library("_create_fp32_partitions",
                          "deepspeed/runtime/zero/stage3.py"),
                  kMain})
                .tag,
            "zero3.fp32_master");
  EXPECT_EQ(
      Tell({Library("defragment", "deepspeed/runtime/zero/utils.py"), kMain})
          .tag,
      "zero3.flat_weights");
  EXPECT_EQ(Tell({Library("_setup_for_real_optimizer",
                          "deepspeed/runtime/zero/stage3.py"),
                  kMain})
                .tag,
            "zero3.grad_buckets");
}

TEST(Attributor, KnowsShardsAndFetchedParameters) {
  EXPECT_EQ(Tell({Library("_partition_param",
                          "deepspeed/runtime/zero/partition_parameters.py"),
                  kMain})
                .tag,
            "zero3.shards");
  EXPECT_EQ(
      Tell({Library("_flat_all_gather_with_coalescing_manager",
                    "deepspeed/runtime/zero/mics.py"),
            Library("fetch_sub_module",
                    "deepspeed/runtime/zero/partitioned_param_coordinator.py"),
            kMain})
          .tag,
      "zero3.live_params");
}

TEST(Attributor, LeavesAUsersFunctionOfTheSameNameAlone) {
  EXPECT_EQ(Tell({Python("_partition_param", kUser)}).tag, "");
}

TEST(Attributor, KnowsPlainTorch) {
  const FrameText call = Library("_call_impl", "torch/nn/modules/module.py");
  const FrameText block = Python("Block.forward", "/home/ada/model.py", 21);
  EXPECT_EQ(Tell({Library("_init_group", "torch/optim/adamw.py"), kMain}).tag,
            "optimizer.states");
  const Told forward =
      Tell({Library("Linear.forward", "torch/nn/modules/linear.py"), call,
            block, call, kMain});
  EXPECT_EQ(forward.tag, "torch.forward");
  EXPECT_EQ(forward.asked_by, "model.py:21 in Block.forward");
  EXPECT_EQ(Tell({Library("_apply", "torch/nn/modules/module.py"),
                  Library("cuda", "torch/nn/modules/module.py"), kMain})
                .tag,
            "weights.move");
  EXPECT_EQ(
      Tell({Native("c10d::Reducer::initialize_buckets", "libtorch.so"), kMain})
          .tag,
      "torch.ddp_buckets");
}

TEST(Attributor, TellsBackwardFromForwardAndRecomputation) {
  const FrameText engine =
      Native("torch::autograd::Engine::evaluate_function", "libtorch_cpu.so");
  const FrameText call = Library("_call_impl", "torch/nn/modules/module.py");
  const Told backward =
      Tell({Native("at::mm", "libtorch_cpu.so"),
            Native("torch::autograd::generated::MmBackward0::apply",
                   "libtorch_cpu.so"),
            engine});
  EXPECT_EQ(backward.tag, "torch.backward");
  EXPECT_EQ(backward.asked_by, "autograd's thread (no Python)");
  EXPECT_EQ(backward.via, "MmBackward0::apply");
  EXPECT_EQ(
      Tell({call,
            Library("CheckpointFunction.backward", "torch/utils/checkpoint.py"),
            engine})
          .tag,
      "torch.recompute");
}

TEST(Attributor, NamesALibraryByHowItWasEntered) {
  const Told told =
      Tell({Native("cuMemCreate", "libcuda.so.1"),
            Native("ncclCuMemAlloc", "libnccl.so.2"),
            Native("ncclCommInitRankConfig", "libnccl.so.2"),
            Native("c10d::broadcast", "libtorch_cuda.so"), kMain});
  EXPECT_EQ(told.tag, "nccl.communicator");
  EXPECT_EQ(told.asked_by, "train.py:40 in main");
  EXPECT_EQ(told.via, "ncclCommInitRankConfig");
}

TEST(Attributor, KnowsServingAndOtherTrainers) {
  EXPECT_EQ(Tell({Library("_allocate_kv_cache_tensors",
                          "vllm/v1/worker/gpu_model_runner.py"),
                  kMain})
                .tag,
            "vllm.kv_cache");
  EXPECT_EQ(Tell({Library("foreach_all_gather",
                          "torch/distributed/fsdp/_fully_shard/"
                          "_fsdp_collectives.py"),
                  kMain})
                .tag,
            "fsdp.all_gather");
  EXPECT_EQ(Tell({Library("_ParamAndGradBuffer.__init__",
                          "megatron/core/distributed/param_and_grad_buffer.py"),
                  kMain})
                .tag,
            "megatron.grad_buffer");
  EXPECT_EQ(
      Tell({Library("graph.__enter__", "torch/cuda/graphs.py"), kMain}).tag,
      "graph.capture");
  EXPECT_EQ(
      Tell({Python("call", "/tmp/torchinductor_ada/ab/cab.py"), kMain}).tag,
      "compile.buffers");
}

TEST(Attributor, TakesTheInnermostLineOfTheUser) {
  const Told told = Tell(
      {Library("helper", "somelib/a.py"), Python("inner", kUser, 8), kMain});
  EXPECT_EQ(told.asked_by, "train.py:8 in inner");
  EXPECT_TRUE(told.user_code);
  EXPECT_EQ(told.via, "helper");
}

TEST(Attributor, FallsBackToLibraryPythonAndThenToNativeCode) {
  const Told library = Tell({Native("cudaMalloc", "libcudart.so.13"),
                             Library("run", "somelib/a.py")});
  EXPECT_EQ(library.asked_by, "a.py:1 in run");
  EXPECT_FALSE(library.user_code);
  EXPECT_EQ(Tell({Native("cudaMalloc", "libcudart.so.13"),
                  Native("Grid::allocate", "solver"), Native("main", "solver")})
                .asked_by,
            "Grid::allocate (solver)");
  EXPECT_EQ(Tell({}).asked_by, "(no stack was taken)");
}

TEST(Attributor, SurvivesAStackIdThatDoesNotExist) {
  const model::Stacks stacks;
  const std::vector<FrameText> frames;
  Attributor attributor(stacks, frames, RuleSet::BuiltIn());
  EXPECT_EQ(attributor.Tell(7).asked_by, "(no stack was taken)");
}

RuleSet Parsed(const std::string& json) {
  return *RuleSet::Parse(json, "test");
}

TEST(Attributor, MatchesPairsInOrderOnly) {
  const RuleSet rules = Parsed(
      R"({"rules": [{"tag": "t", "match": [{"function": "in"}, {"function": "out"}]}]})");
  const FrameText in = Python("in", "/a.py");
  const FrameText out = Python("out", "/a.py");
  EXPECT_EQ(Tell({in, kMain, out}, rules).tag, "t");
  EXPECT_EQ(Tell({out, in}, rules).tag, "");
  EXPECT_EQ(Tell({in}, rules).tag, "");
}

TEST(Attributor, PrefersPriorityThenDepthThenDetailThenOrder) {
  const RuleSet rules = Parsed(R"({"rules": [
    {"tag": "outer", "match": [{"function": "b"}]},
    {"tag": "inner", "match": [{"function": "a"}]},
    {"tag": "twin", "match": [{"function": "a"}]},
    {"tag": "pair", "match": [{"function": "a"}, {"function": "c"}]},
    {"tag": "urgent", "priority": 1, "match": [{"function": "d"}]},
    {"tag": "last", "priority": -1, "match": [{"function": "z"}]}]})");
  const auto tag = [&](std::initializer_list<const char*> names) {
    std::vector<FrameText> frames;
    for (const char* name : names) frames.push_back(Python(name, "/a.py"));
    return Tell(frames, rules).tag;
  };
  EXPECT_EQ(tag({"a", "b"}), "inner");
  EXPECT_EQ(tag({"b", "a"}), "outer");
  EXPECT_EQ(tag({"a", "b", "c"}), "pair");
  EXPECT_EQ(tag({"a", "b", "c", "d"}), "urgent");
  EXPECT_EQ(tag({"z", "b"}), "outer");
}

TEST(Attributor, LetsAddedRulesWinOverTheBuiltIn) {
  RuleSet rules = RuleSet::BuiltIn();
  rules.Prepend(Parsed(
      R"({"rules": [{"tag": "mine", "match": [{"function": "_partition_param"}]}],
          "library_files": "*/train.py"})"));
  const Told told =
      Tell({Library("_partition_param",
                    "deepspeed/runtime/zero/partition_parameters.py"),
            kMain},
           rules);
  EXPECT_EQ(told.tag, "mine");
  EXPECT_FALSE(told.user_code);
}

}  // namespace
}  // namespace dstrace::attribution
