#include "gputrain/optim/weight_average.hpp"

#include <algorithm>
#include <cmath>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/lerp.h>
#include <fmt/format.h>

namespace gputrain::optim {
namespace {

/// Elements that are worked on at a time: what needs memory meanwhile.
constexpr int64_t kTogether = int64_t{1} << 24;

/// Calls work(values, average) for parts of a piece.
template <class Piece, class Work>
void each_part(const Piece& piece, const Work& work) {
  for (int64_t begin = 0; begin < piece.values.numel(); begin += kTogether) {
    const int64_t size = std::min(kTogether, piece.values.numel() - begin);
    work(piece.values.narrow(0, begin, size), piece.average.narrow(0, begin, size));
  }
}

void exchange_tensors(const at::Tensor& one, const at::Tensor& other) {
  const at::Tensor kept = one.clone();
  one.copy_(other);
  other.copy_(kept);
}

}  // namespace

double AverageRule::weight_at(const At& at, int64_t& points) const noexcept {
  if (kind == Kind::equal) {
    const auto points_until = [this](double place) { return std::floor((place - start) / interval + 1e-9); };
    if (at.after < start - 1e-9) return 1;
    const bool is_point = points == 0 || points_until(at.after) > points_until(at.before);
    return is_point ? 1.0 / static_cast<double>(++points) : 0;
  }
  if (at.step == 0) return 1;
  const double young = static_cast<double>(1 + at.step) / static_cast<double>(10 + at.step);
  return 1 - (warms_up ? std::min(decay, young) : decay);
}

std::string AverageRule::describe() const {
  return kind == Kind::exponential ? fmt::format("ema {}", decay)
                                   : fmt::format("swa from step {:.0f} every {:.0f}", start, interval);
}

WeightAverage::WeightAverage(std::unique_ptr<Optimizer> inner, const device::Arena& arena, Buffers buffers,
                             std::string description)
    : inner_(std::move(inner)),
      arena_(arena),
      average_(arena.make_state()),
      buffers_(std::move(buffers)),
      description_(std::move(description)) {
  const at::NoGradGuard no_grad;
  const bool is_cut = arena.keeps_owned_values_only();
  const bool has_values = device::has_memory(arena.kept_values());
  for (const device::Piece& piece : arena.owned()) {
    const int64_t begin = is_cut ? piece.at : piece.range.begin, size = piece.range.size();
    pieces_.push_back({arena.kept_values().narrow(0, begin, size), average_.narrow(0, piece.at, size)});
    if (has_values) pieces_.back().average.copy_(pieces_.back().values);
  }
  std::erase_if(buffers_, [](const auto& named) { return !at::isFloatingType(named.second.scalar_type()); });
  for (const auto& [name, buffer] : buffers_) buffer_averages_.emplace_back(name, buffer.clone());
}

void WeightAverage::step(const StepScalars& scalars) {
  inner_->step(scalars);
  const at::Tensor& weight = scalars.average_weight;
  for (const Piece& piece : pieces_) {
    each_part(piece, [&](const at::Tensor& values, const at::Tensor& average) {
      average.lerp_(values.to(average_.scalar_type()), weight.to(average_.scalar_type()));
    });
  }
  for (size_t i = 0; i < buffers_.size(); ++i) {
    const at::Tensor& buffer = buffers_[i].second;
    buffer_averages_[i].second.lerp_(buffer, weight.to(buffer.scalar_type()));
  }
}

/// Puts the average into the weights and keeps the trained values aside, or puts these back. The average stays as it
/// is, because 16 bits cannot hold it.
void WeightAverage::exchange_narrow_values() {
  for (Piece& piece : pieces_) {
    if (piece.trained.defined()) {
      piece.values.copy_(std::exchange(piece.trained, {}));
    } else {
      piece.trained = piece.values.clone();
      piece.values.copy_(piece.average);
    }
  }
}

Optimizer::State WeightAverage::state() {
  State state = inner_->state();
  state.flat.emplace_back(kName, average_);
  for (const auto& [name, average] : buffer_averages_) state.scalars.emplace_back(buffer_name(name), average);
  return state;
}

void WeightAverage::begin_anew(const std::string& tensor) {
  inner_->begin_anew(tensor);
  for (const device::Segment& segment : arena_.segments()) {
    if (segment.name != tensor) continue;
    const int64_t end = segment.offset + segment.numel;
    for (size_t i = 0; i < pieces_.size(); ++i) {
      const device::Range& range = arena_.owned()[i].range;
      const int64_t from = std::max(range.begin, segment.offset), until = std::min(range.end, end);
      if (from >= until) continue;
      const auto part = [&](const at::Tensor& piece) { return piece.narrow(0, from - range.begin, until - from); };
      part(pieces_[i].average).copy_(part(pieces_[i].values));
    }
  }
}

void WeightAverage::exchange_average() {
  if (arena_.has_narrow_values()) {
    exchange_narrow_values();
  } else {
    for (const Piece& piece : pieces_) each_part(piece, exchange_tensors);
  }
  for (size_t i = 0; i < buffers_.size(); ++i) exchange_tensors(buffers_[i].second, buffer_averages_[i].second);
  note_update(arena_, /*wrote_copy=*/false);
}

}  // namespace gputrain::optim
