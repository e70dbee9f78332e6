#include "token_pass.hpp"

#include <string>
#include <utility>

#include <ATen/ops/empty.h>

#include "gputrain/core/log.hpp"
#include "gputrain/core/numbers.hpp"

namespace gputrain::generation {
namespace {

/// Returns tokens to make room for: at least one behind `place`, and more the longer texts are, for each room costs a
/// recording.
int64_t room_for(int64_t place) {
  constexpr int64_t kStep = 256;
  return ceil_divide(place + 1 + place / 4, kStep) * kStep;
}

}  // namespace

at::Tensor TokenPass::logits_after(std::span<const NextToken> tokens, int64_t place, models::Model::Memory& memory) {
  make_room(place, memory);
  upload(tokens, place);
  ++passes_;
  if (graphs_ == nullptr || passes_ == 1) return compute(memory);
  if (passes_ == 2 && !record(memory)) return compute(memory);
  graphs_->replay(recorded_ - 1);
  return logits_;
}

void TokenPass::make_room(int64_t place, models::Model::Memory& memory) {
  if (place < room_) return;
  room_ = room_for(place);
  for (nn::KeyValues& layer : memory) layer.reserve(room_);
  forget();
}

void TokenPass::upload(std::span<const NextToken> tokens, int64_t place) {
  const auto rows = std::ssize(tokens);
  const at::Device device = model_.context().device;
  if (!inputs_.defined() || inputs_.numel() != 3 * rows + 1) {
    inputs_ = at::empty({3 * rows + 1}, at::TensorOptions().dtype(at::kLong).device(device));
    staged_ = at::empty({3 * rows + 1}, at::TensorOptions().dtype(at::kLong).pinned_memory(device.is_cuda()));
  }
  int64_t* const first = staged_.mutable_data_ptr<int64_t>();
  for (int64_t row = 0; row < rows; ++row) {
    const NextToken& next = tokens[static_cast<size_t>(row)];
    first[row] = next.token;
    first[rows + row] = next.position;
    first[2 * rows + row] = next.begin;
  }
  first[3 * rows] = place;
  // The host may write again after it has read the logits of this pass.
  inputs_.copy_(staged_, /*non_blocking=*/true);
}

at::Tensor TokenPass::compute(models::Model::Memory& memory) {
  const int64_t rows = inputs_.numel() / 3;
  const auto column = [&](int64_t index) { return inputs_.narrow(0, index * rows, rows); };
  return model_.next_logits({.tokens = column(0).view({rows, 1}),
                             .positions = column(1).view({rows, 1}),
                             .begins = column(2),
                             .place = inputs_.narrow(0, 3 * rows, 1)},
                            memory);
}

/// Returns whether there is a graph now. If not, no other is tried.
bool TokenPass::record(models::Model::Memory& memory) {
  const std::string obstacle = graphs_->capture([&] { logits_ = compute(memory); });
  if (obstacle.empty()) {
    ++recorded_;
    return true;
  }
  log::warning("the pass over a token cannot be one CUDA graph, which is slower: " + obstacle);
  graphs_.reset();
  return false;
}

}  // namespace gputrain::generation
