// Runs of texts through a trained model.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "gputrain/predict/predict.hpp"
#include "gputrain/records/given_texts.hpp"

namespace gputrain::app {

/// Texts and the model's output for each: logits [classes], for a tagger [words, classes] without the words that were
/// cut off, or a vector [channels]; float32 on the CPU.
struct TextOutputs {
  std::vector<records::GivenText> texts;
  std::vector<at::Tensor> outputs;
};

/// Runs the texts; warns if they are cut. Throws Error(data) as read_given_texts() does, and for unknown tokens.
TextOutputs outputs_of(trained::Model& model, const TextsToRead& texts, Target target);

}  // namespace gputrain::app
