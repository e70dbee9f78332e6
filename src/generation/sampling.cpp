#include "gputrain/generation/sampling.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <utility>

#include "gputrain/core/error.hpp"

namespace gputrain::generation {
namespace {

void penalise(std::span<double> logits, std::span<const int64_t> text, double penalty) {
  std::vector<int64_t> seen(text.begin(), text.end());
  std::ranges::sort(seen);
  seen.erase(std::ranges::unique(seen).begin(), seen.end());
  for (const int64_t token : seen) {
    if (token < 0 || token >= std::ssize(logits)) continue;
    double& logit = logits[static_cast<size_t>(token)];
    logit = logit < 0 ? logit * penalty : logit / penalty;
  }
}

/// Returns the first of the most likely tokens.
size_t most_likely(std::span<const double> logits) {
  size_t best = 0;
  bool has_nan = logits.empty();
  for (size_t i = 0; i < logits.size(); ++i) {
    has_nan = has_nan || std::isnan(logits[i]);
    if (logits[i] > logits[best]) best = i;
  }
  if (has_nan || !std::isfinite(logits[best])) {
    throw Error(ExitCode::refused, {.what = "the model's logits are not finite numbers",
                                    .hint = "weights of an earlier step, or precision: fp32"});
  }
  return best;
}

double kth_largest(std::span<const double> logits, size_t k) {
  std::vector<double> sorted(logits.begin(), logits.end());
  const auto kth = sorted.begin() + static_cast<std::ptrdiff_t>(k) - 1;
  std::nth_element(sorted.begin(), kth, sorted.end(), std::greater<>());
  return *kth;
}

bool is_likelier(const Candidate& a, const Candidate& b) {
  return a.probability != b.probability ? a.probability > b.probability : a.token < b.token;
}

/// Returns the weight of a token beside that of the most likely one, which is 1.
double weight_of(double logit, double best, const Sampling& sampling) {
  return std::exp((logit - best) / sampling.temperature);
}

/// Keeps the shortest beginning of the sorted tokens with this part of the whole weight. Sorts only as many as needed.
void keep_top_p(std::vector<Candidate>& tokens, double top_p) {
  double whole = 0, before = 0;
  for (const Candidate& each : tokens) whole += each.probability;
  size_t sorted = 0, kept = 0;
  while (kept < tokens.size() && (kept == 0 || before < top_p * whole)) {
    if (kept == sorted) {
      sorted = std::min(tokens.size(), 4 * sorted + 64);
      std::partial_sort(tokens.begin() + static_cast<std::ptrdiff_t>(kept),
                        tokens.begin() + static_cast<std::ptrdiff_t>(sorted), tokens.end(), is_likelier);
    }
    before += tokens[kept++].probability;
  }
  tokens.resize(kept);
  std::ranges::sort(tokens, {}, &Candidate::token);
}

/// Applies the filters after top_k to tokens with weights, in ascending order, and makes the weights probabilities.
std::vector<Candidate> with_probabilities(std::vector<Candidate> tokens, const Sampling& sampling) {
  // The highest weight is exp(0).
  if (sampling.min_p > 0)
    std::erase_if(tokens, [&](const Candidate& each) { return each.probability < sampling.min_p; });
  double sum = 0;
  for (const Candidate& each : tokens) sum += each.probability;
  for (Candidate& each : tokens) each.probability /= sum;
  return tokens;
}

int64_t drawn(const std::vector<Candidate>& left, double uniform) {
  double passed = 0;
  for (const Candidate& each : left) {
    passed += each.probability;
    if (uniform < passed) return each.token;
  }
  return left.back().token;  // the sum was rounded down
}

/// Tokens that are surely the most likely ones, and the highest weight that others may have.
struct Known {
  std::vector<Candidate> tokens;
  double edge = 0;
};

/// Leaves the tokens that top_p and min_p keep. Returns whether that is certain without the other tokens.
bool keep_surely(Known& known, const LargestLogits& largest, const Sampling& sampling) {
  auto& tokens = known.tokens;
  std::ranges::sort(tokens, is_likelier);
  size_t kept = 0;
  double before = 0;
  bool is_reached = false;
  while (kept < tokens.size() && tokens[kept].probability > known.edge) {
    const double missing = sampling.top_p * largest.weight_of_all - before;
    if (sampling.top_p < 1 && kept > 0) {
      if (std::abs(missing) <= largest.rounding * largest.weight_of_all) return false;
      is_reached = missing < 0;
      if (is_reached) break;
    }
    before += tokens[kept++].probability;
  }
  tokens.resize(kept);
  std::ranges::sort(tokens, {}, &Candidate::token);
  return kept > 0 && (is_reached || sampling.min_p > known.edge);
}

}  // namespace

std::optional<int64_t> next_token_of_largest(const LargestLogits& largest, const Sampling& sampling, double uniform) {
  const auto [least, best] = std::ranges::minmax(largest.logits);
  // A sum is not finite if one of its terms is not.
  if (!std::isfinite(std::accumulate(largest.logits.begin(), largest.logits.end(), 0.0))) return std::nullopt;
  // Others may be as large as the least of these.
  constexpr double kRoundingOfExp = 1e-12;
  Known known{.tokens = {}, .edge = weight_of(least, best, sampling) * (1 + kRoundingOfExp)};
  const auto top_k = static_cast<size_t>(sampling.top_k);
  const double kth = top_k > 0 ? kth_largest(largest.logits, top_k) : least;
  for (size_t i = 0; i < largest.logits.size(); ++i) {
    const double logit = largest.logits[i];
    if (logit > least && logit >= kth)
      known.tokens.push_back({static_cast<int64_t>(largest.tokens[i]), weight_of(logit, best, sampling)});
  }
  if (top_k == 0) {
    if (!keep_surely(known, largest, sampling)) return std::nullopt;
  } else {
    if (kth == least) return std::nullopt;
    std::ranges::sort(known.tokens, {}, &Candidate::token);
    if (sampling.top_p < 1) keep_top_p(known.tokens, sampling.top_p);
  }
  return drawn(with_probabilities(std::move(known.tokens), sampling), uniform);
}

std::vector<Candidate> candidates(std::span<double> logits, std::span<const int64_t> text, const Sampling& sampling) {
  if (sampling.repetition_penalty != 1) penalise(logits, text, sampling.repetition_penalty);
  const size_t best = most_likely(logits);
  if (sampling.temperature == 0) return {{static_cast<int64_t>(best), 1}};
  const auto top_k = static_cast<size_t>(sampling.top_k);
  const double least = top_k > 0 && top_k < logits.size() ? kth_largest(logits, top_k) : -HUGE_VAL;
  std::vector<Candidate> tokens;
  tokens.reserve(logits.size());
  for (size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] < least || std::isinf(logits[i])) continue;
    tokens.push_back({static_cast<int64_t>(i), weight_of(logits[i], logits[best], sampling)});
  }
  if (sampling.top_p < 1) keep_top_p(tokens, sampling.top_p);
  return with_probabilities(std::move(tokens), sampling);
}

int64_t next_token(std::span<double> logits, std::span<const int64_t> text, const Sampling& sampling, double uniform) {
  return drawn(candidates(logits, text, sampling), uniform);
}

}  // namespace gputrain::generation
