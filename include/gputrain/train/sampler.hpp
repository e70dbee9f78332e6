// Generates text with a language model: each forward pass yields the next token.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gputrain/data/dataset.hpp"
#include "gputrain/models/model.hpp"
#include "gputrain/train/spec.hpp"

namespace gputrain::train {

/// The part of a text that the model sees: its last `length` tokens.
struct Context {
  int64_t length = 0;
  bool has_one_length = false;  // pads shorter texts at the end, which a causal model does not look at
};

/// Continues `prompt` by spec.max_new_tokens tokens; depends only on weights, prompt and seed. Leaves the model in
/// evaluation mode and does not use its random generators.
std::vector<int64_t> generate(models::Model& model, std::vector<int64_t> prompt, const Context& context,
                              const SampleSpec& spec, uint64_t seed);

/// Prompt and continuation as text, with the dataset's tokenizer. Throws Error(usage) if the prompt is empty, and what
/// the tokenizer throws if it has no token for the prompt.
std::string write_sample(models::Model& model, const data::Dataset& vocabulary, int64_t context_length,
                         const SampleSpec& spec, uint64_t seed);

}  // namespace gputrain::train
