// SPDX-License-Identifier: Apache-2.0
//
// Stacks of FSDP, HF Trainer, accelerate, Megatron and vLLM as their sources
// have them, and the tags that the built-in rules give them.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "analyzer/attribution/attributor.h"

namespace dstrace::attribution {
namespace {

struct Call {
  const char* function;
  const char* file;  // under site-packages
};

std::string TagOf(const std::vector<Call>& calls) {
  std::vector<model::FrameText> frames;
  model::Stacks stacks;
  stacks.stacks.resize(2);
  for (const Call& call : calls) {
    model::FrameText frame;
    frame.python = true;
    frame.function = call.function;
    frame.file = std::string("/opt/py/site-packages/") + call.file;
    frame.line = 1;
    stacks.stacks[1].frames.push_back(static_cast<uint32_t>(frames.size()));
    frames.push_back(frame);
  }
  Attributor attributor(stacks, frames, RuleSet::BuiltIn());
  const Story& story = attributor.Tell(1);
  return story.rule != nullptr ? story.rule->tag : "";
}

constexpr Call kForward{"Module._call_impl", "torch/nn/modules/module.py"};

TEST(NeighbourRules, TellsFsdpUnitsThatRunFromThosePrefetched) {
  const Call alloc{"FlatParamHandle._alloc_padded_unsharded_flat_param",
                   "torch/distributed/fsdp/_flat_param.py"};
  const Call unshard{"FlatParamHandle.unshard",
                     "torch/distributed/fsdp/_flat_param.py"};
  EXPECT_EQ(TagOf({alloc,
                   unshard,
                   {"_unshard", "torch/distributed/fsdp/_runtime_utils.py"},
                   {"_pre_forward_unshard",
                    "torch/distributed/fsdp/_runtime_utils.py"},
                   kForward}),
            "fsdp.all_gather");
  EXPECT_EQ(
      TagOf({alloc,
             unshard,
             {"_unshard", "torch/distributed/fsdp/_runtime_utils.py"},
             {"_prefetch_handle", "torch/distributed/fsdp/_runtime_utils.py"},
             kForward}),
      "fsdp.prefetch");
}

TEST(NeighbourRules, KnowsFsdpSavingAFullStateDict) {
  EXPECT_EQ(TagOf({{"FlatParamHandle._alloc_padded_unsharded_flat_param",
                    "torch/distributed/fsdp/_flat_param.py"},
                   {"FlatParamHandle.unshard",
                    "torch/distributed/fsdp/_flat_param.py"},
                   {"_unshard_fsdp_state_params",
                    "torch/distributed/fsdp/_unshard_param_utils.py"},
                   {"_full_pre_state_dict_hook",
                    "torch/distributed/fsdp/_state_dict_utils.py"},
                   {"Module.state_dict", "torch/nn/modules/module.py"}}),
            "fsdp.full_state_dict");
}

TEST(NeighbourRules, KnowsTheSecondFsdpsBuffersAndLowPrecisionShards) {
  EXPECT_EQ(TagOf({{"unsafe_alloc_storage",
                    "torch/distributed/fsdp/_fully_shard/_fsdp_param.py"},
                   {"FSDPParam.alloc_all_gather_outputs",
                    "torch/distributed/fsdp/_fully_shard/_fsdp_param.py"},
                   kForward}),
            "fsdp.all_gather");
  EXPECT_EQ(TagOf({{"FlatParamHandle._use_low_precision_shard",
                    "torch/distributed/fsdp/_flat_param.py"},
                   {"FlatParamHandle.pre_unshard",
                    "torch/distributed/fsdp/_flat_param.py"},
                   kForward}),
            "fsdp.mixed_precision_shard");
}

TEST(NeighbourRules, KnowsWhatTrainerKeepsWhileItEvaluates) {
  EXPECT_EQ(
      TagOf({{"torch_pad_and_concatenate", "transformers/trainer_pt_utils.py"},
             {"nested_concat", "transformers/trainer_pt_utils.py"},
             {"EvalLoopContainer.add", "transformers/trainer_pt_utils.py"},
             {"Trainer.evaluation_loop", "transformers/trainer.py"},
             {"Trainer.evaluate", "transformers/trainer.py"}}),
      "hf.eval_predictions");
  EXPECT_NE(TagOf({{"gather", "accelerate/utils/operations.py"},
                   {"Trainer.training_step", "transformers/trainer.py"}}),
            "hf.eval_predictions");
}

TEST(NeighbourRules, KnowsAcceleratesFp32CopiesOfOutputs) {
  EXPECT_EQ(TagOf({{"convert_to_fp32.<locals>._convert_to_fp32",
                    "accelerate/utils/operations.py"},
                   {"recursively_apply", "accelerate/utils/operations.py"},
                   {"convert_to_fp32", "accelerate/utils/operations.py"},
                   {"ConvertOutputsToFp32.__call__",
                    "accelerate/utils/operations.py"},
                   kForward}),
            "hf.fp32_outputs");
}

TEST(NeighbourRules, KnowsMegatronsPipelineAndSequenceParallelBuffers) {
  EXPECT_EQ(TagOf({{"_communicate.<locals>.create_tensor_recv_prev",
                    "megatron/core/pipeline_parallel/p2p_communication.py"},
                   {"_communicate",
                    "megatron/core/pipeline_parallel/p2p_communication.py"},
                   {"recv_forward",
                    "megatron/core/pipeline_parallel/p2p_communication.py"}}),
            "megatron.pipeline");
  EXPECT_EQ(TagOf({{"_gather_along_first_dim",
                    "megatron/core/tensor_parallel/mappings.py"},
                   kForward}),
            "megatron.sequence_parallel");
}

TEST(NeighbourRules, ReadsTheMemoryOfAServerOfVllm) {
  EXPECT_EQ(
      TagOf({{"VocabParallelEmbedding.__init__",
              "vllm/model_executor/layers/vocab_parallel_embedding.py"},
             {"initialize_model", "vllm/model_executor/model_loader/utils.py"},
             {"BaseModelLoader.load_model",
              "vllm/model_executor/model_loader/base_loader.py"},
             {"GPUModelRunner.load_model",
              "vllm/v1/worker/gpu_model_runner.py"}}),
      "vllm.weights");
  EXPECT_EQ(TagOf({{"_allocate_kv_cache", "vllm/v1/worker/gpu/attn_utils.py"},
                   {"init_kv_cache", "vllm/v1/worker/gpu/attn_utils.py"}}),
            "vllm.kv_cache");
  EXPECT_EQ(
      TagOf(
          {{"Linear.forward", "torch/nn/modules/linear.py"},
           kForward,
           {"CUDAGraphWrapper.__call__", "vllm/compilation/cuda_graph.py"},
           {"GPUModelRunner._dummy_run", "vllm/v1/worker/gpu_model_runner.py"},
           {"GPUModelRunner.capture_model",
            "vllm/v1/worker/gpu_model_runner.py"}}),
      "vllm.graphs");
  EXPECT_EQ(TagOf({{"Sampler.sample", "vllm/v1/sample/sampler.py"},
                   {"GPUModelRunner.execute_model",
                    "vllm/v1/worker/gpu_model_runner.py"}}),
            "vllm.sampler");
}

// The second FSDP takes the buffers of both directions from one function.
TEST(NeighbourRules, TellsTheReduceScatterFromTheGatherOfTheSecondFsdp) {
  const Call allocate{
      "DefaultAllocMixin.allocate",
      "torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py"};
  EXPECT_EQ(TagOf({allocate,
                   {"foreach_all_gather",
                    "torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py"},
                   {"FSDPParamGroup.unshard",
                    "torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py"},
                   kForward}),
            "fsdp.all_gather");
  EXPECT_EQ(
      TagOf({allocate,
             {"foreach_reduce",
              "torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py"},
             {"FSDPParamGroup.post_backward",
              "torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py"}}),
      "fsdp.reduce_scatter");
}

struct Known {
  const char* tag;
  std::vector<Call> calls;  // innermost first
};

TEST(NeighbourRules, KnowsTheStacksOfTheReleasesItNames) {
  const Known rows[] = {
      {"fsdp.all_gather",
       {{"unsafe_alloc_storage",
         "torch/distributed/_composable/fsdp/_fsdp_param.py"},
        {"FSDPParam.alloc_all_gather_outputs",
         "torch/distributed/_composable/fsdp/_fsdp_param.py"}}},
      {"fsdp.prefetch",
       {{"_alloc_storage", "torch/distributed/utils.py"},
        {"FlatParamHandle._alloc_padded_unsharded_flat_param",
         "torch/distributed/fsdp/_flat_param.py"},
        {"FlatParamHandle.unshard", "torch/distributed/fsdp/_flat_param.py"},
        {"_prefetch_handles", "torch/distributed/fsdp/_runtime_utils.py"}}},
      {"fsdp.mixed_precision_shard",
       {{"FlatParamHandle.init_flat_param_attributes",
         "torch/distributed/fsdp/_flat_param.py"},
        {"_share_state_and_init_handle_attrs",
         "torch/distributed/fsdp/_runtime_utils.py"}}},
      {"fsdp.shards",
       {{"FSDPParam._init_sharded_param",
         "torch/distributed/fsdp/_fully_shard/_fsdp_param.py"},
        {"FSDPParam.__init__",
         "torch/distributed/fsdp/_fully_shard/_fsdp_param.py"},
        {"fully_shard",
         "torch/distributed/fsdp/_fully_shard/_fully_shard.py"}}},
      {"hf.eval_predictions",
       {{"torch_pad_and_concatenate", "transformers/trainer_pt_utils.py"},
        {"nested_concat", "transformers/trainer_pt_utils.py"},
        {"Trainer.prediction_loop", "transformers/trainer.py"}}},
      {"megatron.grad_buffer",
       {{"_ParamAndGradBuffer.__init__",
         "megatron/core/distributed/param_and_grad_buffer.py"},
        {"DistributedDataParallel.__init__",
         "megatron/core/distributed/distributed_data_parallel.py"}}},
      {"megatron.optimizer",
       {{"MixedPrecisionOptimizer.step",
         "megatron/core/optimizer/optimizer.py"},
        {"train_step", "megatron/training/training.py"}}},
      {"megatron.memory_buffer",
       {{"GlobalMemoryBuffer.get_tensor", "megatron/core/utils.py"}}},
      {"vllm.kv_cache",
       {{"allocate_kv_cache", "vllm/v1/worker/utils.py"},
        {"GPUModelRunner.initialize_kv_cache_tensors",
         "vllm/v1/worker/gpu_model_runner.py"},
        {"GPUModelRunner.initialize_kv_cache",
         "vllm/v1/worker/gpu_model_runner.py"}}},
      {"vllm.kv_cache",
       {{"allocate_kv_cache", "vllm/v1/worker/utils.py"},
        {"init_kv_cache", "vllm/v1/worker/gpu/attn_utils.py"},
        {"GPUModelRunner.initialize_kv_cache",
         "vllm/v1/worker/gpu/model_runner.py"}}},
      {"vllm.kv_cache",
       {{"CacheEngine._allocate_kv_cache", "vllm/worker/cache_engine.py"},
        {"CacheEngine.__init__", "vllm/worker/cache_engine.py"},
        {"Worker._init_cache_engine", "vllm/worker/worker.py"}}},
      {"vllm.profile_run",
       {{"LlamaMLP.forward", "vllm/model_executor/models/llama.py"},
        {"GPUModelRunner._dummy_run", "vllm/v1/worker/gpu_model_runner.py"},
        {"GPUModelRunner.profile_run", "vllm/v1/worker/gpu_model_runner.py"},
        {"Worker.determine_available_memory", "vllm/v1/worker/gpu_worker.py"}}},
      {"vllm.weight_repack",
       {{"Fp8LinearMethod.process_weights_after_loading",
         "vllm/model_executor/layers/quantization/fp8.py"},
        {"process_weights_after_loading",
         "vllm/model_executor/model_loader/utils.py"},
        {"BaseModelLoader.load_model",
         "vllm/model_executor/model_loader/base_loader.py"}}},
      {"vllm.graphs",
       {{"CudaGraphManager.capture", "vllm/v1/worker/gpu/cudagraph_utils.py"}}},
      {"serving.kv_cache",
       {{"MHATokenToKVPool._create_buffers",
         "sglang/srt/mem_cache/memory_pool.py"}}},
      {"serving.kv_cache",
       {{"DynamicLayer.update", "transformers/cache_utils.py"},
        {"DynamicCache.update", "transformers/cache_utils.py"}}},
  };
  for (const Known& row : rows) {
    EXPECT_EQ(TagOf(row.calls), row.tag) << row.calls.front().function;
  }
  // The same name elsewhere is nobody's cache.
  EXPECT_NE(TagOf({{"Layout._create_buffers", "acme/layout.py"}}),
            "serving.kv_cache");
}

}  // namespace
}  // namespace dstrace::attribution
