#include "gputrain/generation/likelihood.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/zeros.h>

#include "gputrain/core/error.hpp"
#include "gputrain/core/numbers.hpp"

namespace gputrain::generation {
namespace {

using ScoredTexts = std::span<const ScoredText>;

/// Returns the tokens of a text that the model reads: all but the last, which nothing follows.
std::span<const int64_t> read_of(const ScoredText& text) {
  return std::span(text.tokens).first(text.tokens.size() - 1);
}

/// ScoredTexts that the model reads in one pass; neighbours may share a row.
struct SharedPass {
  std::vector<size_t> texts;
  std::vector<int64_t> rows;  // row of each text
  int64_t count = 0;          // number of rows
  int64_t time = 0;           // length of the longest row
};

/// Sorts the longest texts first, so that texts of like length stand together and a lack of memory shows at once.
std::vector<size_t> order_of(ScoredTexts texts) {
  std::vector<size_t> order(texts.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, [&](size_t a, size_t b) {
    const auto left = read_of(texts[a]), right = read_of(texts[b]);
    if (left.size() != right.size()) return left.size() > right.size();
    return std::ranges::lexicographical_compare(left, right);
  });
  return order;
}

std::vector<SharedPass> passes_of(ScoredTexts texts, const BatchLimits& limits) {
  std::vector<SharedPass> passes;
  for (const size_t text : order_of(texts)) {
    const auto read = read_of(texts[text]);
    if (passes.empty() || !std::ranges::equal(read, read_of(texts[passes.back().texts.back()]))) {
      const bool has_room = !passes.empty() && passes.back().count < limits.rows &&
                            (passes.back().count + 1) * passes.back().time <= limits.tokens;
      if (!has_room) passes.push_back({.texts = {}, .rows = {}, .time = std::ssize(read)});
      ++passes.back().count;
    }
    passes.back().texts.push_back(text);
    passes.back().rows.push_back(passes.back().count - 1);
  }
  return passes;
}

at::Tensor tensor_of(const std::vector<int64_t>& numbers, at::Device device) {
  const at::Tensor tensor = at::empty({std::ssize(numbers)}, at::kLong);
  std::ranges::copy(numbers, tensor.mutable_data_ptr<int64_t>());
  return tensor.to(device);
}

/// Logarithms of probabilities, fp64 on the host, of the targets after the rows of features. Logits are made of some
/// rows at a time.
std::vector<double> logarithms(const models::Model::LastLayer& last, const at::Tensor& features,
                               const at::Tensor& targets, int64_t logits_bytes) {
  constexpr int64_t kEnough = int64_t{256} << 20;  // the softmax has a wider copy, and a result as large
  std::vector<double> found;
  ops::each_part(
      last.head, features, targets, std::min(logits_bytes, kEnough),
      [&](const at::Tensor& rows, const at::Tensor& wanted) {
        const at::Tensor logits = (last.head.logits ? last.head.logits(rows) : rows).narrow(-1, 0, last.classes);
        const auto type = logits.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
        const at::Tensor values =
            at::log_softmax(logits, -1, type).gather(1, wanted.unsqueeze(1)).to(at::kDouble).to(at::kCPU).contiguous();
        const double* const first = values.const_data_ptr<double>();
        found.insert(found.end(), first, first + values.numel());
      });
  return found;
}

/// Sums of the pass's texts, into `sums`.
void score(models::Model& model, ScoredTexts texts, const SharedPass& pass, std::span<double> sums) {
  // On a GPU, kernels are chosen by size: few sizes. Padding stands at the end, where a causal model does not look.
  constexpr int64_t kTogether = 64;
  const at::Device device = model.context().device;
  const auto known = device.is_cpu() ? std::nullopt : model.text_limits();
  const int64_t padded =
      known ? std::min(ceil_divide(pass.time, kTogether) * kTogether, std::max(pass.time, known->length)) : pass.time;
  const at::Tensor tokens = at::zeros({pass.count, padded}, at::kLong);
  std::vector<int64_t> places, targets;
  for (size_t i = 0; i < pass.texts.size(); ++i) {
    const ScoredText& text = texts[pass.texts[i]];
    const auto read = read_of(text);
    const int64_t row = pass.rows[i] * padded;
    std::ranges::copy(read, tokens.mutable_data_ptr<int64_t>() + row);
    for (int64_t place = std::ssize(read) - text.scored; place < std::ssize(read); ++place) {
      places.push_back(row + place);
      targets.push_back(text.tokens[static_cast<size_t>(place) + 1]);
    }
  }
  gputrain::Batch batch;
  batch.fields.push_back({.name = kTokens, .values = tokens.to(device)});
  batch.samples = batch.samples_on_all_ranks = pass.count;
  batch.weight = std::ssize(targets);
  const auto last = model.last_layer(batch);
  const at::Tensor features =
      last.features.reshape({-1, last.features.size(-1)}).index_select(0, tensor_of(places, device));
  const auto found = logarithms(last, features, tensor_of(targets, device), model.context().logits_bytes);
  auto next = found.begin();
  for (const size_t text : pass.texts) {
    const auto end = next + texts[text].scored;
    sums[text] = std::accumulate(next, end, 0.0);
    next = end;
  }
}

}  // namespace

std::vector<double> log_likelihoods(models::Model& model, ScoredTexts texts, const BatchLimits& limits,
                                    comm::Group& ranks, const ProgressWatch& progress) {
  if (texts.empty()) return {};
  const at::NoGradGuard no_grad;
  model.train(false);
  for (const ScoredText& text : texts) {
    GPUTRAIN_ASSERT(text.scored > 0 && text.scored < std::ssize(text.tokens), "scored tokens follow at least one");
  }
  const at::Tensor sums = at::zeros({std::ssize(texts)}, at::kDouble);
  const std::span<double> values(sums.mutable_data_ptr<double>(), texts.size());
  const std::vector<SharedPass> passes = passes_of(texts, limits);
  const auto step = static_cast<size_t>(ranks.size()), first = static_cast<size_t>(ranks.rank());
  int64_t done = 0, all = 0;
  for (size_t i = first; i < passes.size(); i += step) all += std::ssize(passes[i].texts);
  for (size_t i = first; i < passes.size(); i += step) {
    score(model, texts, passes[i], values);
    done += std::ssize(passes[i].texts);
    if (progress) progress(done, all);
  }
  ranks.all_reduce_sum(sums, "log-likelihoods").wait();  // one rank's number and zeros: exact
  if (std::ranges::any_of(values, [](double value) { return std::isnan(value); })) {
    throw Error(ExitCode::refused,
                {.what = "the model's log-likelihoods are not numbers",
                 .hint = "its weights are broken, or the precision is too low: --set precision=fp32"});
  }
  return {values.begin(), values.end()};
}

}  // namespace gputrain::generation
