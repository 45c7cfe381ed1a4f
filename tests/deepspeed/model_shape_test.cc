// SPDX-License-Identifier: Apache-2.0
#include "analyzer/deepspeed/model_shape.h"

#include <gtest/gtest.h>

namespace dstrace::deepspeed {
namespace {

struct Known {
  const char* config;
  int64_t parameters;
};

class KnownModels : public testing::TestWithParam<Known> {};

// Counts as the model cards and torch give them.
TEST_P(KnownModels, HaveTheirParameterCount) {
  absl::StatusOr<ModelShape> shape = ReadModelConfig(GetParam().config);

  ASSERT_TRUE(shape.ok()) << shape.status();
  EXPECT_EQ(shape->total(), GetParam().parameters);
}

INSTANTIATE_TEST_SUITE_P(
    All, KnownModels,
    testing::Values(
        Known{R"({"model_type": "bloom", "n_embed": 4096, "n_layer": 30,
                  "vocab_size": 250880})",
              7069016064},
        Known{R"({"model_type": "gpt2", "n_embd": 768, "n_layer": 12,
                  "n_positions": 1024, "vocab_size": 50257})",
              124439808},
        Known{R"({"model_type": "llama", "hidden_size": 4096,
                  "num_hidden_layers": 32, "intermediate_size": 11008,
                  "num_attention_heads": 32, "vocab_size": 32000})",
              6738415616},
        Known{R"({"model_type": "llama", "hidden_size": 4096,
                  "num_hidden_layers": 32, "intermediate_size": 14336,
                  "num_attention_heads": 32, "num_key_value_heads": 8,
                  "vocab_size": 128256})",
              8030261248},
        Known{R"({"model_type": "mistral", "hidden_size": 4096,
                  "num_hidden_layers": 32, "intermediate_size": 14336,
                  "num_attention_heads": 32, "num_key_value_heads": 8,
                  "vocab_size": 32000})",
              7241732096},
        Known{R"({"model_type": "qwen2", "hidden_size": 896,
                  "num_hidden_layers": 24, "intermediate_size": 4864,
                  "num_attention_heads": 14, "num_key_value_heads": 2,
                  "vocab_size": 151936, "tie_word_embeddings": true})",
              494032768},
        Known{R"({"model_type": "opt", "hidden_size": 768,
                  "num_hidden_layers": 12, "ffn_dim": 3072,
                  "max_position_embeddings": 2048, "vocab_size": 50272,
                  "word_embed_proj_dim": 768})",
              125239296},
        Known{R"({"model_type": "gpt_neox", "hidden_size": 768,
                  "num_hidden_layers": 12, "intermediate_size": 3072,
                  "vocab_size": 50304})",
              162322944},
        Known{R"({"model_type": "gptj", "n_embd": 4096, "n_layer": 28,
                  "vocab_size": 50400})",
              6050882784}));

TEST(ModelShape, KnowsTheTiedHeadAndTheLargestParameter) {
  absl::StatusOr<ModelShape> bloom = ReadModelConfig(
      R"({"model_type": "bloom", "hidden_size": 4096, "n_layer": 30,
          "vocab_size": 250880})");

  ASSERT_TRUE(bloom.ok());
  EXPECT_TRUE(bloom->tied_head);
  EXPECT_EQ(bloom->largest_parameter(), int64_t{250880} * 4096);
  EXPECT_EQ(bloom->head_elements, int64_t{250880} * 4096);
}

TEST(ModelShape, RefusesWhatItCannotKnow) {
  EXPECT_FALSE(ReadModelConfig("nonsense").ok());
  EXPECT_FALSE(ReadModelConfig("{}").ok());
  EXPECT_EQ(ReadModelConfig(R"({"model_type": "dinosaur"})").status().code(),
            absl::StatusCode::kUnimplemented);
  EXPECT_EQ(ReadModelConfig(R"({"model_type": "bloom"})").status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_FALSE(ReadModelConfig(
                   R"({"model_type": "bloom", "hidden_size": 60000000,
                       "n_layer": 4000, "vocab_size": 60000000})")
                   .ok());
}

}  // namespace
}  // namespace dstrace::deepspeed
