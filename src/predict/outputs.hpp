// Runs texts through a trained model.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "gputrain/predict/predict.hpp"
#include "gputrain/records/given_texts.hpp"

namespace gputrain::app {

/// Texts with what the model gives for each: logits [classes], of a tagger [words, classes] without those that were
/// cut off, or a vector [channels]; float32 on the CPU.
struct TextOutputs {
  std::vector<records::GivenText> texts;
  std::vector<at::Tensor> outputs;
};

/// Warns if texts are cut. Throws Error(data) as read_given_texts() does, and for tokens that the model does not know.
TextOutputs outputs_of(trained::Model& model, const TextsToRead& texts, Target target);

}  // namespace gputrain::app
