// Lets a language model write: repeated forward passes, each drawing the next token.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gputrain/data/dataset.hpp"
#include "gputrain/models/model.hpp"
#include "gputrain/train/spec.hpp"

namespace gputrain::train {

/// What a model sees of a text: its last `length` tokens.
struct Context {
  int64_t length = 0;
  bool has_one_length = false;  // a shorter text is filled up behind its end, which a causal model does not look at
};

/// `prompt` continued by spec.max_new_tokens tokens, a function of weights, prompt and seed alone. Leaves the model in
/// evaluation mode and its random generators untouched.
std::vector<int64_t> generate(models::Model& model, std::vector<int64_t> prompt, const Context& context,
                              const SampleSpec& spec, uint64_t seed);

/// The text of prompt and continuation, through the dataset's vocabulary. Throws Error(usage) when the prompt is empty
/// or has a character that the vocabulary lacks.
std::string write_sample(models::Model& model, const data::Dataset& vocabulary, int64_t context_length,
                         const SampleSpec& spec, uint64_t seed);

}  // namespace gputrain::train
