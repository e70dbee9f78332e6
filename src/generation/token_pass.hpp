// Reads texts token by token, with the same sizes in every pass: in memory with room for more tokens.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include <ATen/core/Tensor.h>

#include "gputrain/device/captured_graph.hpp"
#include "gputrain/models/model.hpp"

namespace gputrain::generation {

/// A token of a text that is read next.
struct NextToken {
  int64_t token = 0, position = 0;
  int64_t begin = 0;  // begin of the text in memory, behind padding
};

/// The room grows in steps. Until it does, or texts are left out, passes differ in the values of tensors alone: the
/// first one is queued, the second one recorded, and the others replay it.
class TokenPass {
 public:
  /// `graphs`: null to queue every pass.
  TokenPass(models::Model& model, std::unique_ptr<device::CapturedGraphs> graphs)
      : model_(model), graphs_(std::move(graphs)) {}

  /// Returns the logits [rows, vocabulary] after one token of each row, which memory then has at `place`. Read them
  /// before the next call.
  at::Tensor logits_after(std::span<const NextToken> tokens, int64_t place, models::Model::Memory& memory);

  /// Forgets recorded passes. Call it when the rows in memory change.
  void forget() { passes_ = 0; }

 private:
  void make_room(int64_t place, models::Model::Memory& memory);
  void upload(std::span<const NextToken> tokens, int64_t place);
  at::Tensor compute(models::Model::Memory& memory);
  bool record(models::Model::Memory& memory);

  models::Model& model_;
  std::unique_ptr<device::CapturedGraphs> graphs_;
  size_t recorded_ = 0;         // graphs so far
  int64_t passes_ = 0;          // passes of these sizes
  int64_t room_ = 0;            // tokens
  at::Tensor inputs_, staged_;  // int64 [3 rows + 1] on the device, and on the host: tokens, positions, begins, place
  at::Tensor logits_;           // written by a replay
};

}  // namespace gputrain::generation
