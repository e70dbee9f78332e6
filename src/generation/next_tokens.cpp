#include "next_tokens.hpp"

#include <algorithm>
#include <cmath>
#include <optional>

#include <ATen/TensorOperators.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cumsum.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/max.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/topk.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include "gputrain/device/runtime.hpp"

namespace gputrain::generation {
namespace {

// Sums of probabilities differ in their last bits by the order of their terms, so a GPU's decide if they differ from
// the limit by this part.
constexpr double kRounding = 1e-9;

/// A token, or none if only the whole row tells.
using Certain = std::optional<int64_t>;

/// Returns the values on the host, fp64.
at::Tensor on_host(const at::Tensor& values) {
  if (values.is_cpu()) return values.to(at::kDouble).contiguous();
  const at::Tensor wide = values.to(at::kDouble).contiguous();
  const at::Tensor here = at::empty(wide.sizes(), at::TensorOptions().dtype(at::kDouble).pinned_memory(true));
  here.copy_(wide, /*non_blocking=*/true);
  device::synchronize(values.device());
  return here;
}

std::span<double> row_of(const at::Tensor& values, size_t row) {
  const auto columns = static_cast<size_t>(values.size(1));
  return {values.mutable_data_ptr<double>() + row * columns, columns};
}

/// Returns the logits with the penalty, in fp64, of all tokens of the texts.
at::Tensor penalised(const at::Tensor& logits, std::span<const Draw> draws, double penalty) {
  size_t longest = 0;
  for (const Draw& draw : draws) longest = std::max(longest, draw.text.size());
  const at::Tensor seen = at::zeros({logits.size(0), static_cast<int64_t>(longest)}, at::kLong);
  for (const Draw& draw : draws) {
    int64_t* const to = seen.mutable_data_ptr<int64_t>() + draw.row * longest;
    std::ranges::copy(draw.text, to);
    std::fill(to + draw.text.size(), to + longest, draw.text.back());
  }
  const at::Tensor places = seen.to(logits.device()), wide = logits.to(at::kDouble), found = wide.gather(1, places);
  return wide.scatter(1, places, at::where(found.lt(0), found * penalty, found / penalty));
}

/// Returns the most likely token of each row: [rows, 2], its logit and its number, the first of several.
std::vector<Certain> most_likely(const at::Tensor& logits, std::span<const Draw> draws) {
  const auto [best, tokens] = at::max(logits, 1);
  const at::Tensor found = on_host(at::stack({best.to(at::kDouble), tokens.to(at::kDouble)}, 1));
  std::vector<Certain> certain;
  for (const Draw& draw : draws) {
    const auto row = row_of(found, draw.row);
    const bool is_one = std::isfinite(row[0]) && row[1] >= 0 && row[1] < static_cast<double>(logits.size(1));
    certain.push_back(is_one ? Certain(static_cast<int64_t>(row[1])) : std::nullopt);
  }
  return certain;
}

/// Returns exp((logit - the highest one) / temperature), fp64.
at::Tensor weights_of(const at::Tensor& logits, double temperature) {
  const at::Tensor wide = logits.to(at::kDouble);
  return at::exp((wide - wide.amax(1, /*keepdim=*/true)) / temperature);
}

/// Draws from all tokens: the first one up to which the sum of weights is above this part of all.
std::vector<Certain> drawn_from_all(const at::Tensor& logits, std::span<const Draw> draws, double temperature) {
  const int64_t columns = logits.size(1);
  at::Tensor uniform = at::zeros({logits.size(0), 1}, at::kDouble);
  for (const Draw& draw : draws) uniform.mutable_data_ptr<double>()[draw.row] = draw.uniform;
  const at::Tensor sums = at::cumsum(weights_of(logits, temperature), 1), whole = sums.narrow(1, columns - 1, 1);
  const at::Tensor wanted = uniform.to(logits.device()) * whole;
  const at::Tensor tokens = at::searchsorted(sums, wanted, /*out_int32=*/false, /*right=*/true).clamp_max(columns - 1);
  const at::Tensor above = (sums.gather(1, tokens) - wanted) / whole,
                   below = (wanted - sums.gather(1, (tokens - 1).clamp_min(0))) / whole;
  const at::Tensor found = on_host(at::stack({tokens.to(at::kDouble), above, below}, 1).squeeze(2));
  std::vector<Certain> certain;
  for (const Draw& draw : draws) {
    const auto row = row_of(found, draw.row);
    const bool is_certain = row[1] > kRounding && (row[0] == 0 || row[2] > kRounding);
    certain.push_back(is_certain ? Certain(static_cast<int64_t>(row[0])) : std::nullopt);
  }
  return certain;
}

std::vector<Certain> drawn_from_largest(const at::Tensor& logits, std::span<const Draw> draws, const Sampling& sampling,
                                        int64_t count) {
  const auto [largest, tokens] = at::topk(logits, count, 1);
  const at::Tensor whole = sampling.top_k == 0 && sampling.top_p < 1
                               ? at::sum(weights_of(logits, sampling.temperature), 1, true)
                               : at::zeros({logits.size(0), 1}, largest.options().dtype(at::kDouble));
  const at::Tensor found = on_host(at::cat({largest.to(at::kDouble), tokens.to(at::kDouble), whole}, 1));
  std::vector<Certain> certain;
  for (const Draw& draw : draws) {
    const auto row = row_of(found, draw.row);
    const auto size = static_cast<size_t>(count);
    certain.push_back(next_token_of_largest({.logits = row.first(size),
                                             .tokens = row.subspan(size, size),
                                             .weight_of_all = row.back(),
                                             .rounding = kRounding},
                                            sampling, draw.uniform));
  }
  return certain;
}

/// Returns how many of the largest logits are read.
int64_t count_for(const Sampling& sampling) { return sampling.top_k > 0 ? 2 * sampling.top_k + 64 : 1024; }

}  // namespace

std::vector<int64_t> next_tokens_by_few(const at::Tensor& logits, std::span<const Draw> draws,
                                        const Sampling& sampling) {
  const bool is_penalised = sampling.repetition_penalty != 1;
  const bool filters = sampling.top_k > 0 || sampling.top_p < 1 || sampling.min_p > 0;
  const int64_t count = count_for(sampling);
  std::vector<Certain> certain(draws.size());
  const at::Tensor used = is_penalised ? penalised(logits, draws, sampling.repetition_penalty) : logits;
  if (sampling.temperature == 0) {
    certain = most_likely(used, draws);
  } else if (!filters) {
    certain = drawn_from_all(used, draws, sampling.temperature);
  } else if (count < logits.size(1)) {
    certain = drawn_from_largest(used, draws, sampling, count);
  }
  std::vector<int64_t> tokens;
  for (size_t i = 0; i < draws.size(); ++i) {
    if (certain[i]) {
      tokens.push_back(*certain[i]);
      continue;
    }
    const at::Tensor row = on_host(logits.narrow(0, static_cast<int64_t>(draws[i].row), 1)).clone();
    tokens.push_back(next_token(row_of(row, 0), draws[i].text, sampling, draws[i].uniform));
  }
  return tokens;
}

std::vector<int64_t> next_tokens(const at::Tensor& logits, std::span<const Draw> draws, const Sampling& sampling) {
  if (!logits.is_cpu()) return next_tokens_by_few(logits, draws, sampling);
  // A copy, for the filters write to it.
  const at::Tensor wide = logits.to(at::kDouble, /*non_blocking=*/false, /*copy=*/true).contiguous();
  std::vector<int64_t> tokens;
  for (const Draw& draw : draws)
    tokens.push_back(next_token(row_of(wide, draw.row), draw.text, sampling, draw.uniform));
  return tokens;
}

}  // namespace gputrain::generation
