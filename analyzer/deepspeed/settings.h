// SPDX-License-Identifier: Apache-2.0
//
// What DeepSpeed works with after it has read the config: defaults filled in,
// "auto" resolved as the release resolves it. Thread-safety: plain data.
// Units: sizes count elements unless the name says bytes.
#ifndef DSTRACE_ANALYZER_DEEPSPEED_SETTINGS_H_
#define DSTRACE_ANALYZER_DEEPSPEED_SETTINGS_H_

#include <cstdint>
#include <string>

#include "analyzer/deepspeed/version.h"

namespace dstrace::deepspeed {

enum class Offload { kNone, kCpu, kNvme };

struct Settings {
  Version version{0, 19, 6};
  int stage = 0;
  int world_size = 0;
  int gpus_per_node = 0;
  int64_t mics_shard_size = -1;
  bool mics_hierarchical = false;
  int64_t hpz_partition_size = 1;
  bool override_module_apply = true;
  bool contiguous_gradients = true;
  int64_t sub_group_size = 1000000000;
  bool sub_group_size_written = false;  // a number stands in the config
  int64_t reduce_bucket_size = 500000000;
  int64_t allgather_bucket_size = 500000000;
  int64_t prefetch_bucket_size = 50000000;
  int64_t max_live_parameters = 1000000000;
  int64_t param_persistence_threshold = 100000;
  Offload offload_optimizer = Offload::kNone;
  Offload offload_param = Offload::kNone;
  bool pin_optimizer = false;  // what is offloaded is page-locked
  bool pin_param = false;
  int param_bytes = 2;  // of one parameter on the GPU: 2 with fp16 or bf16
  int grad_bytes = 2;   // of one gradient in its persistent partition
  // deepspeed.initialize leaves the optimizer's states to the first step
  // (stages 1 to 3 since 0.13.2).
  bool states_at_first_step = true;
  std::string optimizer;  // optimizer.type in lower case, may be empty

  // Ranks over which stage 3 shards: MiCS's group, else the whole world.
  int partitions() const {
    if (stage == 3 && mics_shard_size > 0) {
      return static_cast<int>(mics_shard_size);
    }
    return world_size > 0 ? world_size : 1;
  }
};

}  // namespace dstrace::deepspeed

#endif  // DSTRACE_ANALYZER_DEEPSPEED_SETTINGS_H_
