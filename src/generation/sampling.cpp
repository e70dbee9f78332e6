#include "gputrain/generation/sampling.hpp"

#include <algorithm>
#include <cmath>
#include <functional>

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

/// The first of the most likely tokens.
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

/// The shortest beginning of the sorted tokens with this part of the whole weight. Sorts no more of them than it needs.
void keep_top_p(std::vector<Candidate>& tokens, double top_p) {
  double whole = 0, before = 0;
  for (const Candidate& each : tokens) whole += each.probability;
  const auto is_likelier = [](const Candidate& a, const Candidate& b) {
    return a.probability != b.probability ? a.probability > b.probability : a.token < b.token;
  };
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

}  // namespace

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
    tokens.push_back({static_cast<int64_t>(i), std::exp((logits[i] - logits[best]) / sampling.temperature)});
  }
  if (sampling.top_p < 1) keep_top_p(tokens, sampling.top_p);
  // The highest weight is exp(0).
  if (sampling.min_p > 0)
    std::erase_if(tokens, [&](const Candidate& each) { return each.probability < sampling.min_p; });
  double sum = 0;
  for (const Candidate& each : tokens) sum += each.probability;
  for (Candidate& each : tokens) each.probability /= sum;
  return tokens;
}

int64_t next_token(std::span<double> logits, std::span<const int64_t> text, const Sampling& sampling, double uniform) {
  const std::vector<Candidate> left = candidates(logits, text, sampling);
  double passed = 0;
  for (const Candidate& each : left) {
    passed += each.probability;
    if (uniform < passed) return each.token;
  }
  return left.back().token;  // the sum was rounded down
}

}  // namespace gputrain::generation
