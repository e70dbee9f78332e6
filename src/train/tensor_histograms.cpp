#include "tensor_histograms.hpp"

#include <algorithm>
#include <cmath>
#include <tuple>

#include <ATen/Context.h>
#include <ATen/ops/aminmax.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/histc.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

namespace gputrain::train {
namespace {

/// A sum in double copies its values as doubles, and the float that counts a bin is exact to 16.7 million.
constexpr int64_t kMostInAPiece = int64_t{1} << 22;

std::vector<at::Tensor> pieces_of(const at::Tensor& flat) {
  return flat.numel() == 0 ? std::vector<at::Tensor>() : flat.split(kMostInAPiece);
}

/// On a GPU, LibTorch refuses to count in any order if `deterministic` is set. Sums of ones do not depend on it.
class AnyOrder {
 public:
  AnyOrder() : before_(at::globalContext().deterministicAlgorithms()) { set(false); }
  AnyOrder(const AnyOrder&) = delete;
  AnyOrder& operator=(const AnyOrder&) = delete;
  ~AnyOrder() { set(before_); }

 private:
  static void set(bool is_deterministic) {
    at::globalContext().setDeterministicAlgorithms(is_deterministic, /*warn_only=*/false);
  }
  const bool before_;
};

constexpr int64_t kNumbersOfSpread = 4;

at::Tensor table_of(const std::vector<Spread>& spreads) {
  at::Tensor table = at::empty({std::ssize(spreads), kNumbersOfSpread}, at::kDouble);
  auto* next = table.mutable_data_ptr<double>();
  for (const Spread& spread : spreads)
    for (const double number : {spread.least, spread.most, spread.sum, spread.sum_of_squares}) *next++ = number;
  return table;
}

}  // namespace

void Spread::add(const Spread& other) {
  least = std::min(least, other.least);
  most = std::max(most, other.most);
  sum += other.sum;
  sum_of_squares += other.sum_of_squares;
}

bool Spread::has_bins() const noexcept { return std::isfinite(sum_of_squares) && least <= most; }

std::vector<Spread> spreads_of(const std::vector<at::Tensor>& flats) {
  std::vector<Spread> spreads(flats.size());
  std::vector<size_t> tensors;  // tensor of each piece
  std::vector<at::Tensor> least, most, sums, norms;
  for (size_t i = 0; i < flats.size(); ++i) {
    for (const at::Tensor& piece : pieces_of(flats[i])) {
      const auto ends = at::aminmax(piece);
      least.push_back(std::get<0>(ends));
      most.push_back(std::get<1>(ends));
      sums.push_back(piece.sum(at::kDouble));
      norms.push_back(at::linalg_vector_norm(piece, 2, {}, false, at::kDouble));
      tensors.push_back(i);
    }
  }
  if (tensors.empty()) return spreads;
  const at::Tensor ends = at::cat({at::stack(least), at::stack(most)}).to(at::kDouble);
  const at::Tensor read = at::cat({ends, at::stack(sums), at::stack(norms)}).cpu();
  const auto* numbers = read.const_data_ptr<double>();
  const size_t pieces = tensors.size();
  for (size_t at = 0; at < pieces; ++at) {
    const double norm = numbers[3 * pieces + at];
    spreads[tensors[at]].add({.least = numbers[at],
                              .most = numbers[pieces + at],
                              .sum = numbers[2 * pieces + at],
                              .sum_of_squares = norm * norm});
  }
  return spreads;
}

std::vector<Spread> over_ranks(const std::vector<Spread>& spreads, comm::ProcessGroups& groups) {
  const at::Tensor all = groups.control().all_gather(table_of(spreads), "spreads of gradients");
  const auto* next = all.const_data_ptr<double>();
  std::vector<Spread> together(spreads.size());
  for (int rank = 0; rank < groups.mesh().shards(); ++rank) {  // ranks of the first replica; the others have the same
    for (Spread& spread : together) {
      spread.add({.least = next[0], .most = next[1], .sum = next[2], .sum_of_squares = next[3]});
      next += kNumbersOfSpread;
    }
  }
  return together;
}

at::Tensor counts_of(const std::vector<at::Tensor>& flats, const std::vector<Spread>& spreads, at::Device device) {
  const auto options = at::TensorOptions().dtype(at::kDouble).device(device);
  const AnyOrder any_order;
  at::Tensor counts = at::zeros({std::ssize(flats), kHistogramBins}, options);
  for (size_t i = 0; i < flats.size(); ++i) {
    const Spread& spread = spreads[i];
    if (!spread.has_bins()) continue;
    const at::Tensor row = counts.select(0, static_cast<int64_t>(i));
    if (spread.least == spread.most) {
      row.select(0, 0).fill_(flats[i].numel());
      continue;
    }
    for (const at::Tensor& piece : pieces_of(flats[i]))
      row.add_(at::histc(piece, kHistogramBins, spread.least, spread.most));
  }
  return counts;
}

monitor::Histogram histogram_of(const Spread& spread, const at::Tensor& counts, double factor) {
  const auto* first = counts.const_data_ptr<double>();
  return {.least = spread.least * factor,
          .most = spread.most * factor,
          .sum = spread.sum * factor,
          .sum_of_squares = spread.sum_of_squares * factor * factor,
          .counts = {first, first + kHistogramBins}};
}

}  // namespace gputrain::train
