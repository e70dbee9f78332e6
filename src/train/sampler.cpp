#include "gputrain/train/sampler.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>

#include "gputrain/core/error.hpp"
#include "gputrain/core/random.hpp"

namespace gputrain::train {
namespace {

/// Draws an index from softmax(logits / temperature), among the k largest; ties keep the smaller index.
int64_t draw(std::span<const double> logits, const SampleSpec& spec, double uniform) {
  std::vector<size_t> order(logits.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return logits[a] > logits[b]; });
  if (spec.temperature == 0) return static_cast<int64_t>(order[0]);
  if (spec.top_k) order.resize(std::min(order.size(), static_cast<size_t>(*spec.top_k)));
  std::vector<double> cumulative;
  double sum = 0;
  for (const size_t i : order) cumulative.push_back(sum += std::exp((logits[i] - logits[order[0]]) / spec.temperature));
  const auto chosen = std::upper_bound(cumulative.begin(), cumulative.end(), uniform * sum) - cumulative.begin();
  return static_cast<int64_t>(order[std::min(static_cast<size_t>(chosen), order.size() - 1)]);
}

}  // namespace

std::vector<int64_t> generate(models::Model& model, std::vector<int64_t> prompt, const Context& context,
                              const SampleSpec& spec, uint64_t seed) {
  GPUTRAIN_ASSERT(!prompt.empty() && context.length > 0, "a model needs at least one token to continue");
  const at::NoGradGuard no_grad;
  model.train(false);
  RandomStream random(seed, stable_hash("sample"));
  for (int64_t i = 0; i < spec.max_new_tokens; ++i) {
    const auto length = std::min(std::ssize(prompt), context.length);
    const at::Tensor tokens = at::zeros({1, context.has_one_length ? context.length : length}, at::kLong);
    std::copy(prompt.end() - length, prompt.end(), tokens.mutable_data_ptr<int64_t>());
    const at::Tensor logits_of_all = model.forward(tokens.to(model.context().device));
    const at::Tensor last = logits_of_all.select(0, 0).select(0, length - 1).to(at::kCPU, at::kDouble).contiguous();
    const std::span<const double> logits(last.const_data_ptr<double>(), static_cast<size_t>(last.numel()));
    prompt.push_back(draw(logits, spec, random.uniform()));
  }
  return prompt;
}

std::string write_sample(models::Model& model, const data::Dataset& vocabulary, int64_t context_length,
                         const SampleSpec& spec, uint64_t seed) {
  const auto tokenizer = vocabulary.tokenizer();
  const auto prompt = tokenizer->encode(spec.prompt, "the prompt");
  if (prompt.empty()) {
    throw Error(ExitCode::usage, {.what = "eval.sample.prompt is empty", .hint = "give it at least one character"});
  }
  // On a GPU use one length: choosing and compiling kernels per length takes longer than the whole sample.
  const Context context{.length = context_length, .has_one_length = !model.context().device.is_cpu()};
  return tokenizer->decode(generate(model, prompt, context, spec, seed));
}

}  // namespace gputrain::train
