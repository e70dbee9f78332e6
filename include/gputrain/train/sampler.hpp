// Generates text with a language model.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gputrain/data/dataset.hpp"
#include "gputrain/generation/generate.hpp"
#include "gputrain/models/model.hpp"
#include "gputrain/train/spec.hpp"

namespace gputrain::train {

/// Continues `prompt` by spec.max_new_tokens tokens, also beyond the context, or to the first of `end_tokens`, which is
/// left out; depends only on weights, prompt and seed. Leaves the model in evaluation mode and does not use its random
/// generators.
std::vector<int64_t> generate(models::Model& model, std::vector<int64_t> prompt, generation::ContextWindow context,
                              const std::vector<int64_t>& end_tokens, const SampleSpec& spec, uint64_t seed);

/// Writes prompt and continuation as text, with the dataset's tokenizer; it ends before one of the end tokens. The
/// prompt has a token. Throws what the tokenizer throws.
std::string write_sample(models::Model& model, const data::Dataset& vocabulary, int64_t context_length,
                         const std::vector<int64_t>& end_tokens, const SampleSpec& spec, uint64_t seed);

}  // namespace gputrain::train
