// SPDX-License-Identifier: Apache-2.0
#include "analyzer/deepspeed/model_shape.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"

namespace dstrace::deepspeed {
namespace {

using Json = nlohmann::json;

// Far above any real model; sums and 18 bytes a parameter stay in int64.
constexpr int64_t kLargestSize = 1 << 26;
constexpr int64_t kLargestParameter = int64_t{1} << 42;
constexpr int64_t kMostLayers = 4096;

class Builder {
 public:
  explicit Builder(const Json& config) : config_(config) {}

  // The first of the names that is there; an error is kept for Finish.
  int64_t Need(std::initializer_list<const char*> names) {
    for (const char* name : names) {
      std::optional<int64_t> value = Size(name);
      if (value) return *value;
    }
    if (missing_.empty()) missing_ = *names.begin();
    return 1;
  }

  int64_t Get(const char* name, int64_t otherwise) {
    return Size(name).value_or(otherwise);
  }

  bool Flag(const char* name, bool otherwise) const {
    auto found = config_.find(name);
    return found != config_.end() && found->is_boolean() ? found->get<bool>()
                                                         : otherwise;
  }

  void Add(const std::string& module, const char* name, int64_t elements) {
    if (elements > kLargestParameter || elements < 0) {
      missing_ = module;
      elements = 0;
    }
    shape.parameters.push_back({module, name, elements});
  }

  // A product of two sizes that cannot overflow: too large ones become an
  // error.
  int64_t Times(int64_t a, int64_t b) {
    int64_t product = 0;
    if (__builtin_mul_overflow(a, b, &product) || product > kLargestParameter) {
      missing_ = "sizes that fit";
      return 1;
    }
    return product;
  }

  void Linear(const std::string& module, int64_t in, int64_t out, bool bias) {
    Add(module, "weight", Times(in, out));
    if (bias) Add(module, "bias", out);
  }

  void LayerNorm(const std::string& module, int64_t size) {
    Add(module, "weight", size);
    Add(module, "bias", size);
  }

  void Head(const char* module, int64_t hidden, int64_t vocabulary, bool bias,
            bool tied) {
    shape.tied_head = Flag("tie_word_embeddings", tied);
    shape.head_elements = Times(hidden, vocabulary);
    if (!shape.tied_head) Linear(module, hidden, vocabulary, bias);
  }

  const std::string& missing() const { return missing_; }

  ModelShape shape;

 private:
  std::optional<int64_t> Size(const char* name) {
    auto found = config_.find(name);
    if (found == config_.end() || !found->is_number_integer()) {
      return std::nullopt;
    }
    int64_t value = found->get<int64_t>();
    if (value <= 0 || value > kLargestSize) return std::nullopt;
    return value;
  }

  const Json& config_;
  std::string missing_;
};

int64_t Layers(Builder& build, std::initializer_list<const char*> names) {
  return std::min(build.Need(names), kMostLayers);
}

void BuildBloom(Builder& build) {
  int64_t hidden = build.Need({"hidden_size", "n_embed"});
  int64_t vocabulary = build.Need({"vocab_size"});
  int64_t layers = Layers(build, {"n_layer", "num_hidden_layers"});
  build.shape.hidden_size = hidden;
  build.Add("word_embeddings", "weight", build.Times(vocabulary, hidden));
  build.LayerNorm("word_embeddings_layernorm", hidden);
  for (int64_t i = 0; i < layers; ++i) {
    build.LayerNorm("input_layernorm", hidden);
    build.Linear("query_key_value", hidden, 3 * hidden, true);
    build.Linear("dense", hidden, hidden, true);
    build.LayerNorm("post_attention_layernorm", hidden);
    build.Linear("dense_h_to_4h", hidden, 4 * hidden, true);
    build.Linear("dense_4h_to_h", 4 * hidden, hidden, true);
  }
  build.LayerNorm("ln_f", hidden);
  build.Head("lm_head", hidden, vocabulary, false, true);
}

void BuildLlamaLike(Builder& build, const std::string& family) {
  int64_t hidden = build.Need({"hidden_size"});
  int64_t vocabulary = build.Need({"vocab_size"});
  int64_t layers = Layers(build, {"num_hidden_layers"});
  int64_t inner = build.Need({"intermediate_size"});
  int64_t heads = build.Need({"num_attention_heads"});
  int64_t key_heads = build.Get("num_key_value_heads", heads);
  int64_t width = build.Get("head_dim", std::max<int64_t>(hidden / heads, 1));
  bool bias = build.Flag("attention_bias", family == "qwen2");
  bool output_bias = family != "qwen2" && bias;
  build.shape.hidden_size = hidden;
  build.Add("embed_tokens", "weight", build.Times(vocabulary, hidden));
  for (int64_t i = 0; i < layers; ++i) {
    build.Linear("q_proj", hidden, build.Times(heads, width), bias);
    build.Linear("k_proj", hidden, build.Times(key_heads, width), bias);
    build.Linear("v_proj", hidden, build.Times(key_heads, width), bias);
    build.Linear("o_proj", build.Times(heads, width), hidden, output_bias);
    if (family == "qwen3") {
      build.Add("q_norm", "weight", width);
      build.Add("k_norm", "weight", width);
    }
    bool mlp_bias = build.Flag("mlp_bias", false);
    build.Linear("gate_proj", hidden, inner, mlp_bias);
    build.Linear("up_proj", hidden, inner, mlp_bias);
    build.Linear("down_proj", inner, hidden, mlp_bias);
    build.Add("input_layernorm", "weight", hidden);
    build.Add("post_attention_layernorm", "weight", hidden);
  }
  build.Add("norm", "weight", hidden);
  build.Head("lm_head", hidden, vocabulary, false, family == "gemma");
}

void BuildGpt2(Builder& build) {
  int64_t hidden = build.Need({"n_embd", "hidden_size"});
  int64_t vocabulary = build.Need({"vocab_size"});
  int64_t layers = Layers(build, {"n_layer", "num_hidden_layers"});
  int64_t inner = build.Get("n_inner", 4 * hidden);
  build.shape.hidden_size = hidden;
  build.Add("wte", "weight", build.Times(vocabulary, hidden));
  build.Add("wpe", "weight",
            build.Times(build.Need({"n_positions", "n_ctx"}), hidden));
  for (int64_t i = 0; i < layers; ++i) {
    build.LayerNorm("ln_1", hidden);
    build.Linear("c_attn", hidden, 3 * hidden, true);
    build.Linear("attn.c_proj", hidden, hidden, true);
    build.LayerNorm("ln_2", hidden);
    build.Linear("c_fc", hidden, inner, true);
    build.Linear("mlp.c_proj", inner, hidden, true);
  }
  build.LayerNorm("ln_f", hidden);
  build.Head("lm_head", hidden, vocabulary, false, true);
}

void BuildOpt(Builder& build) {
  int64_t hidden = build.Need({"hidden_size"});
  int64_t vocabulary = build.Need({"vocab_size"});
  int64_t layers = Layers(build, {"num_hidden_layers"});
  int64_t inner = build.Need({"ffn_dim"});
  int64_t embedding = build.Get("word_embed_proj_dim", hidden);
  int64_t positions = build.Need({"max_position_embeddings"});
  bool bias = build.Flag("enable_bias", true);
  build.shape.hidden_size = hidden;
  build.Add("embed_tokens", "weight", build.Times(vocabulary, embedding));
  // OPT's position table begins with two unused rows.
  build.Add("embed_positions", "weight", build.Times(positions + 2, hidden));
  if (embedding != hidden) {
    build.Linear("project_out", hidden, embedding, false);
    build.Linear("project_in", embedding, hidden, false);
  }
  if (build.Flag("do_layer_norm_before", true) &&
      !build.Flag("_remove_final_layer_norm", false)) {
    build.LayerNorm("final_layer_norm", hidden);
  }
  for (int64_t i = 0; i < layers; ++i) {
    for (const char* name : {"k_proj", "v_proj", "q_proj", "out_proj"}) {
      build.Linear(name, hidden, hidden, bias);
    }
    build.LayerNorm("self_attn_layer_norm", hidden);
    build.Linear("fc1", hidden, inner, bias);
    build.Linear("fc2", inner, hidden, bias);
    build.LayerNorm("layer.final_layer_norm", hidden);
  }
  build.Head("lm_head", embedding, vocabulary, false, true);
}

void BuildNeox(Builder& build) {
  int64_t hidden = build.Need({"hidden_size"});
  int64_t vocabulary = build.Need({"vocab_size"});
  int64_t layers = Layers(build, {"num_hidden_layers"});
  int64_t inner = build.Get("intermediate_size", 4 * hidden);
  bool bias = build.Flag("attention_bias", true);
  build.shape.hidden_size = hidden;
  build.Add("embed_in", "weight", build.Times(vocabulary, hidden));
  for (int64_t i = 0; i < layers; ++i) {
    build.LayerNorm("input_layernorm", hidden);
    build.LayerNorm("post_attention_layernorm", hidden);
    build.Linear("query_key_value", hidden, 3 * hidden, bias);
    build.Linear("attention.dense", hidden, hidden, bias);
    build.Linear("dense_h_to_4h", hidden, inner, true);
    build.Linear("dense_4h_to_h", inner, hidden, true);
  }
  build.LayerNorm("final_layer_norm", hidden);
  build.Head("embed_out", hidden, vocabulary, false, false);
}

void BuildGptj(Builder& build) {
  int64_t hidden = build.Need({"n_embd", "hidden_size"});
  int64_t vocabulary = build.Need({"vocab_size"});
  int64_t layers = Layers(build, {"n_layer", "num_hidden_layers"});
  int64_t inner = build.Get("n_inner", 4 * hidden);
  build.shape.hidden_size = hidden;
  build.Add("wte", "weight", build.Times(vocabulary, hidden));
  for (int64_t i = 0; i < layers; ++i) {
    build.LayerNorm("ln_1", hidden);
    for (const char* name : {"k_proj", "v_proj", "q_proj", "out_proj"}) {
      build.Linear(name, hidden, hidden, false);
    }
    build.Linear("fc_in", hidden, inner, true);
    build.Linear("fc_out", inner, hidden, true);
  }
  build.LayerNorm("ln_f", hidden);
  build.Head("lm_head", hidden, vocabulary, true, false);
}

bool BuildFamily(const std::string& family, Builder& build) {
  if (family == "bloom") {
    BuildBloom(build);
  } else if (family == "llama" || family == "mistral" || family == "qwen2" ||
             family == "qwen3" || family == "gemma") {
    BuildLlamaLike(build, family);
  } else if (family == "gpt2") {
    BuildGpt2(build);
  } else if (family == "opt") {
    BuildOpt(build);
  } else if (family == "gpt_neox") {
    BuildNeox(build);
  } else if (family == "gptj") {
    BuildGptj(build);
  } else {
    return false;
  }
  return true;
}

}  // namespace

int64_t ModelShape::total() const {
  int64_t sum = 0;
  for (const ParameterShape& one : parameters) sum += one.elements;
  return sum;
}

int64_t ModelShape::largest_parameter() const {
  int64_t largest = 0;
  for (const ParameterShape& one : parameters) {
    largest = std::max(largest, one.elements);
  }
  return largest;
}

int64_t ModelShape::largest_layer() const {
  int64_t largest = 0;
  int64_t current = 0;
  const std::string* module = nullptr;
  for (const ParameterShape& one : parameters) {
    bool same = module != nullptr && *module == one.module;
    current = same ? current + one.elements : one.elements;
    module = &one.module;
    largest = std::max(largest, current);
  }
  return largest;
}

absl::StatusOr<ModelShape> ReadModelConfig(std::string_view json) {
  Json config = Json::parse(json, nullptr, /*allow_exceptions=*/false);
  if (!config.is_object()) {
    return absl::InvalidArgumentError("the model config is not a JSON object");
  }
  auto type = config.find("model_type");
  if (type == config.end() || !type->is_string()) {
    return absl::InvalidArgumentError("the model config has no model_type");
  }
  Builder build(config);
  build.shape.family = type->get<std::string>();
  if (!BuildFamily(build.shape.family, build)) {
    return absl::UnimplementedError(
        absl::StrCat("no shape known for model_type \"", build.shape.family,
                     "\"; give the parameter count"));
  }
  if (!build.missing().empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the model config has no usable ", build.missing()));
  }
  return std::move(build.shape);
}

}  // namespace dstrace::deepspeed
