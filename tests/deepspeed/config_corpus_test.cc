// SPDX-License-Identifier: Apache-2.0
//
// Configs as people run them: none may get an error in the release it is for.
#include <gtest/gtest.h>

#include "analyzer/deepspeed/config_check.h"
#include "tests/deepspeed/test_files.h"

namespace dstrace::deepspeed {
namespace {

struct Corpus {
  const char* file;
  Version since;  // the first release that takes it; checked up to 0.19.6
  int world_size;
};

std::ostream& operator<<(std::ostream& out, const Corpus& one) {
  return out << one.file;
}

class GoodConfig : public testing::TestWithParam<Corpus> {};

TEST_P(GoodConfig, GetsNoErrorInAnyReleaseThatTakesIt) {
  std::string text = ReadTestFile(GetParam().file);
  ASSERT_FALSE(text.empty());
  for (Version version :
       {Version{0, 10, 0}, Version{0, 10, 1}, Version{0, 10, 2},
        Version{0, 12, 3}, Version{0, 14, 2}, Version{0, 15, 4},
        Version{0, 16, 6}, Version{0, 17, 1}, Version{0, 17, 5},
        Version{0, 18, 5}, Version{0, 19, 6}}) {
    if (version < GetParam().since) continue;
    CheckOptions options;
    options.version = version;
    options.world_size = GetParam().world_size;

    ConfigReport report = CheckConfig(text, options);

    EXPECT_EQ(CountFindings(report.findings, Severity::kError), 0)
        << FormatVersion(version) << "\n"
        << Describe(report.findings);
  }
}

constexpr Version kAll{0, 10, 0};

INSTANTIATE_TEST_SUITE_P(
    All, GoodConfig,
    testing::Values(Corpus{"zero0_fp32.json", kAll, 8},
                    Corpus{"zero1_fp16_warmup.json", kAll, 8},
                    Corpus{"zero1_no_stage3_keys.json", kAll, 4},
                    Corpus{"zero2_hf_auto.json", kAll, 8},
                    Corpus{"zero3_hf_auto.json", kAll, 8},
                    Corpus{"zero3_hf_offload_both.json", kAll, 2},
                    Corpus{"zero3_nvme_infinity.json", kAll, 8},
                    Corpus{"bloom_176b_megatron.json", kAll, 8},
                    Corpus{"megatron_curriculum.json", kAll, 32},
                    Corpus{"megatron_moe.json", kAll, 64},
                    Corpus{"data_efficiency.json", kAll, 64},
                    Corpus{"zeropp_full.json", kAll, 16},
                    Corpus{"zeropp_hpz_lora.json", {0, 10, 2}, 16},
                    Corpus{"chat_rlhf_stage3.json", kAll, 8},
                    Corpus{"mics_two_nodes.json", kAll, 16},
                    Corpus{"mics_hierarchical.json", kAll, 32},
                    Corpus{"lora_qlora_zero2.json", kAll, 4},
                    Corpus{"factory_zero3_bf16.json", kAll, 8},
                    Corpus{"activation_checkpointing.json", kAll, 4},
                    Corpus{"old_cpu_offload_flag.json", kAll, 4},
                    Corpus{"lamb_bert.json", kAll, 64},
                    Corpus{"onebit_adam.json", kAll, 64},
                    Corpus{"compression_zeroquant.json", kAll, 1},
                    Corpus{"autotuning.json", kAll, 8},
                    Corpus{"elastic.json", kAll, 8},
                    Corpus{"monitors.json", kAll, 8},
                    Corpus{"checkpoint_universal.json", kAll, 8},
                    Corpus{"pld.json", kAll, 64},
                    Corpus{"sparse_attention.json", kAll, 8},
                    Corpus{"amp_no_zero.json", kAll, 4},
                    Corpus{"accelerate_zero3.json", kAll, 8},
                    Corpus{"zero3_twinflow.json", {0, 12, 3}, 8},
                    Corpus{"autotp_zero1.json", {0, 16, 4}, 4},
                    Corpus{"deepcompile.json", {0, 16, 6}, 8},
                    Corpus{"zenflow.json", {0, 17, 5}, 8},
                    Corpus{"ulysses_sp.json", {0, 16, 10}, 8}),
    [](const testing::TestParamInfo<Corpus>& one) {
      std::string name = one.param.file;
      return name.substr(0, name.find('.'));
    });

}  // namespace
}  // namespace dstrace::deepspeed
