// SPDX-License-Identifier: Apache-2.0
//
// The parameters of a Hugging Face model, from its config.json alone.
// Thread-safety: pure functions. Units: elements.
#ifndef DSTRACE_ANALYZER_DEEPSPEED_MODEL_SHAPE_H_
#define DSTRACE_ANALYZER_DEEPSPEED_MODEL_SHAPE_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace dstrace::deepspeed {

struct ParameterShape {
  std::string module;  // layers repeat their names
  std::string name;    // "weight", "bias", ...
  int64_t elements = 0;
};

struct ModelShape {
  std::string family;
  int64_t hidden_size = 0;
  // In the order in which the model registers them; a tied output head is
  // not listed a second time.
  std::vector<ParameterShape> parameters;
  bool tied_head = false;
  int64_t head_elements = 0;  // of the output head, tied or not

  int64_t total() const;
  int64_t largest_parameter() const;
  // Parameters of the largest module without its children.
  int64_t largest_layer() const;
};

// Reads bloom, llama, mistral, qwen2, qwen3, gemma, gpt2, opt, gpt_neox and
// gptj. Errors: InvalidArgument for text that is no such config or lacks a
// size, Unimplemented for another model_type (give the parameter count).
absl::StatusOr<ModelShape> ReadModelConfig(std::string_view json);

}  // namespace dstrace::deepspeed

#endif  // DSTRACE_ANALYZER_DEEPSPEED_MODEL_SHAPE_H_
