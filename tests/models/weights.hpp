// Weights of small models, for tests that load them.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>

#include <ATen/ops/full.h>

#include "../../src/models/texts/gpt.hpp"
#include "gputrain/models/pretrained.hpp"
#include "models/small_job.hpp"

namespace gputrain::models {

inline TensorSource source_of(std::map<std::string, at::Tensor> tensors) {
  TensorSource source{.where = "w/model.safetensors"};
  for (const auto& [name, tensor] : tensors) source.names.push_back(name);
  source.tensor = [tensors = std::move(tensors)](const std::string& name) { return tensors.at(name); };
  return source;
}

/// A small GPT-2, and a constant value for each of its tensors.
struct Tiny {
  Tiny() {
    nn::initialize(model, 1);
    model.each_parameter([&](const std::string& name, nn::Parameter& parameter) {
      tensors[name] = at::full(parameter.value.sizes(), 0.25, at::kBFloat16);
    });
  }
  Gpt model{{.n_layer = 1, .n_head = 2, .n_embd = 8}, {}, {.input_shape = {4}, .num_classes = 5}};
  std::map<std::string, at::Tensor> tensors;
};

/// Weights of an MLP for `classes` classes, and a model for three classes.
struct OtherHead {
  explicit OtherHead(int64_t classes, int64_t inputs = 4) {
    const auto job = load_job("model: {type: mlp, config: {hidden: [6]}}");
    model = build(job, {.input_shape = {1, 2, 2}, .num_classes = 3});
    nn::initialize(*model, 1);
    const auto theirs = build(job, {.input_shape = {1, 1, inputs}, .num_classes = classes});
    theirs->each_parameter([&](const std::string& name, nn::Parameter& parameter) {
      tensors[name] = at::full(parameter.value.sizes(), 0.25);
    });
  }
  std::unique_ptr<Model> model;
  std::map<std::string, at::Tensor> tensors;
};

}  // namespace gputrain::models
