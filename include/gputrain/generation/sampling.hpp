// The choice of the next token: filters a model's logits as transformers does, and draws.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace gputrain::generation {

/// The filters, in the order in which they act.
struct Sampling {
  double repetition_penalty = 1;  // for tokens in the text: divides logits above 0, multiplies others
  double temperature = 0;         // divides logits; 0: always the most likely token, the first of several
  int64_t top_k = 0;              // keeps the k most likely tokens, and those as likely as the last; 0: all
  double top_p = 1;               // keeps the most likely tokens that together reach this probability
  double min_p = 0;               // keeps tokens with this part of the highest probability
};

/// A token that may follow, and its probability.
struct Candidate {
  int64_t token = 0;
  double probability = 0;
};

/// Returns the tokens that the filters leave, in ascending order; their probabilities sum to 1. `text` comes before
/// them. Works on `logits` [vocabulary] in place. Throws Error(refused) if they are not numbers.
std::vector<Candidate> candidates(std::span<double> logits, std::span<const int64_t> text, const Sampling& sampling);

/// Draws the next token by a number that is uniform in [0, 1). See candidates().
int64_t next_token(std::span<double> logits, std::span<const int64_t> text, const Sampling& sampling, double uniform);

/// Some logits of a row after the penalty. None of them is smaller than one that is missing.
struct LargestLogits {
  std::span<const double> logits, tokens;  // in any order
  double weight_of_all = 0;  // the sum over the row of exp((logit - highest) / temperature); read without top_k only
  double rounding = 0;       // rounding error of that sum, as part of it
};

/// Returns next_token() of the whole row if these logits decide it. Needs a filter beside the temperature.
std::optional<int64_t> next_token_of_largest(const LargestLogits& largest, const Sampling& sampling, double uniform);

}  // namespace gputrain::generation
