// How likely a language model finds tokens that follow others.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "gputrain/comm/group.hpp"
#include "gputrain/models/model.hpp"

namespace gputrain::generation {

/// Tokens, the last `scored` of which are scored: each after all before it. At least one token comes before them.
struct ScoredText {
  std::vector<int64_t> tokens;
  int64_t scored = 0;
};

/// Limits of one pass: so many texts, and, if there are several, so many tokens with padding.
struct BatchLimits {
  int64_t rows = 32, tokens = 16384;
};

/// A function that is called with the number of texts that are done, and of all.
using ProgressWatch = std::function<void(int64_t done, int64_t all)>;

/// Returns for each text the sum of the natural logarithms of its scored tokens' probabilities. Softmax is in fp32, or
/// in fp64 if the model computes in it; sums are in fp64. Texts that differ in their last token alone are read once.
/// Batches do not depend on the number of ranks, and neither do the sums if each rank computes with as many threads.
/// Every rank must call, with the same texts. Leaves the model in evaluation mode. Throws Error(refused) on all ranks
/// if a sum is not a number.
std::vector<double> log_likelihoods(models::Model& model, std::span<const ScoredText> texts, const BatchLimits& limits,
                                    comm::Group& ranks, const ProgressWatch& progress = {});

}  // namespace gputrain::generation
