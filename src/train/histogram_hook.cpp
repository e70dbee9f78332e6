#include "gputrain/train/histogram_hook.hpp"

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include <ATen/core/grad_mode.h>

#include "tensor_histograms.hpp"

namespace gputrain::train {
namespace {

/// Returns this rank's part of each of the arena's tensors in `flat`, which holds what the rank owns (`is_owned`) or
/// everything.
std::vector<at::Tensor> parts_in(const at::Tensor& flat, bool is_owned, const device::Arena& arena) {
  std::vector<at::Tensor> parts;
  for (const device::Segment& segment : arena.segments()) {
    at::Tensor part = flat.narrow(0, 0, 0);
    for (const device::Piece& piece : arena.owned()) {
      const int64_t begin = std::clamp(segment.offset, piece.range.begin, piece.range.end);
      const int64_t end = std::clamp(segment.offset + segment.numel, piece.range.begin, piece.range.end);
      if (begin < end) part = flat.narrow(0, is_owned ? piece.at + begin - piece.range.begin : begin, end - begin);
    }
    parts.push_back(part);
  }
  return parts;
}

void add(monitor::Histograms& histograms, const std::string& prefix, const device::Arena& arena,
         const std::vector<Spread>& spreads, const at::Tensor& counts, double factor) {
  const at::Tensor read = counts.cpu();
  for (size_t i = 0; i < spreads.size(); ++i) {
    if (spreads[i].has_bins())
      histograms[prefix + arena.segments()[i].name] =
          histogram_of(spreads[i], read.select(0, static_cast<int64_t>(i)), factor);
  }
}

}  // namespace

bool HistogramHook::will_act(const Progress& progress, bool requested) const {
  return requested || parts_.reporting.plan.histograms.at_step(progress.step);
}

bool HistogramHook::is_due() const {
  const double seconds = parts_.reporting.plan.histograms.seconds;
  return seconds > 0 && since_last_.seconds() >= seconds;
}

Stop HistogramHook::after_step(Progress& progress, const StepResult& result, bool requested) {
  if (!will_act(progress, requested)) return Stop::none;
  since_last_.lap();
  const bool is_shown = parts_.groups.rank() == 0;
  if (!is_shown && !parts_.shares_gradients) return Stop::none;
  const at::NoGradGuard no_grad;
  auto histograms = std::make_shared<monitor::Histograms>();
  add_gradients(*histograms, result.gradient_norm.item<double>());
  if (is_shown || parts_.arena.keeps_owned_values_only()) add_weights(*histograms);
  if (!is_shown) return Stop::none;
  parts_.reporting.recorder.log({.step = progress.step,
                                 .epoch = parts_.reporting.plan.epochs_in(progress.step),
                                 .kind = "histograms",
                                 .histograms = std::move(histograms)});
  return Stop::none;
}

void HistogramHook::add_weights(monitor::Histograms& histograms) const {
  const device::Arena& arena = parts_.arena;
  std::vector<at::Tensor> flats;
  if (arena.keeps_owned_values_only()) {
    flats = parts_in(arena.owned_values(), /*is_owned=*/true, arena);
  } else {
    for (const device::Segment& segment : arena.segments())
      flats.push_back(arena.values().narrow(0, segment.offset, segment.numel));
  }
  auto spreads = spreads_of(flats);
  if (arena.keeps_owned_values_only()) spreads = over_ranks(spreads, parts_.groups);
  const at::Tensor counts = counts_of(flats, spreads, arena.options().device());
  if (arena.keeps_owned_values_only()) parts_.groups.shards().all_reduce_sum(counts, "histograms of weights").wait();
  add(histograms, "weights/", arena, spreads, counts, 1);
}

/// Updates may leave the gradient as it was or may unscale and clip it in place; `norm`, which is measured before, says
/// what it was.
void HistogramHook::add_gradients(monitor::Histograms& histograms, double norm) const {
  const device::Arena& arena = parts_.arena;
  const auto flats = parts_in(arena.kept_gradients(), arena.keeps_owned_gradients_only(), arena);
  auto spreads = spreads_of(flats);
  if (parts_.shares_gradients) spreads = over_ranks(spreads, parts_.groups);
  const at::Tensor counts = counts_of(flats, spreads, parts_.arena.options().device());
  if (parts_.shares_gradients) parts_.groups.shards().all_reduce_sum(counts, "histograms of gradients").wait();
  double square = 0;
  for (const Spread& spread : spreads) square += spread.sum_of_squares;
  if (!std::isfinite(norm) || !std::isfinite(square)) return;
  add(histograms, "gradients/", parts_.arena, spreads, counts, square > 0 ? norm / std::sqrt(square) : 1);
}

}  // namespace gputrain::train
