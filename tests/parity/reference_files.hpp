// What tests read of the files that a reference in Python has written.
#pragma once

#include <cmath>
#include <map>
#include <string>

#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>

#include "gputrain/checkpoint/safetensors.hpp"
#include "gputrain/models/model.hpp"
#include "gputrain/models/pretrained.hpp"

namespace gputrain::models {

inline TensorSource source_of(const checkpoint::SafetensorsFile& file) {
  return {.where = "the reference's weights", .names = file.names(), .tensor = [&file](const std::string& name) {
            return file.tensor(name);
          }};
}

/// A parameter's name in files.
inline std::string file_name(const Model& model, const std::string& parameter) {
  const auto family = family_of(model);
  return family ? family->file_name_of(model, parameter) : parameter;
}

/// ||d|| <= tolerance (||reference|| + 1e-3 ||all||): a nearly zero gradient need not have more digits than it can. The
/// reference names gradients as we name parameters, or as files do.
inline void expect_equal_gradients(Model& model, const checkpoint::SafetensorsFile& expected, double tolerance) {
  std::map<std::string, at::Tensor> reference;
  double all = 0;
  for (const std::string& name : expected.names()) {
    if (!name.starts_with("gradient/")) continue;
    const at::Tensor gradient = expected.tensor(name);
    reference[name.substr(9)] = gradient;
    all += std::pow(gradient.norm().item<double>(), 2);
  }
  all = std::sqrt(all);
  size_t compared = 0;
  model.each_parameter([&](const std::string& parameter_name, nn::Parameter& parameter) {
    const std::string name = reference.contains(parameter_name) ? parameter_name : file_name(model, parameter_name);
    ASSERT_TRUE(reference.contains(name)) << name;
    const double difference = (parameter.value.grad() - reference[name]).norm().item<double>();
    EXPECT_LE(difference, tolerance * (reference[name].norm().item<double>() + 1e-3 * all)) << name;
    ++compared;
  });
  EXPECT_EQ(compared, reference.size());
}

inline checkpoint::NamedTensors tensors_of(Model& model) {
  checkpoint::NamedTensors tensors;
  model.each_parameter([&](const std::string& name, nn::Parameter& p) {
    tensors.emplace_back(file_name(model, name), p.value.detach());
  });
  model.each_buffer([&](const std::string& name, nn::Buffer& b) { tensors.emplace_back(name, b.value); });
  return tensors;
}

}  // namespace gputrain::models
