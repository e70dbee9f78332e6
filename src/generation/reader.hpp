// Reads the tokens of texts that grow together, and gives the logits that follow each.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "gputrain/generation/generate.hpp"
#include "gputrain/models/model.hpp"
#include "token_pass.hpp"

namespace gputrain::generation {

class Reader {
 public:
  /// `make_graphs` as in Options.
  Reader(models::Model& model, const ContextWindow& context, const MakeCapturedGraphs& make_graphs);

  /// Returns whether each number of texts costs time to prepare for, so that it should not change often.
  bool has_fixed_sizes() const noexcept { return token_pass_.has_value(); }

  /// Returns the logits [texts, vocabulary] after each text; read them before the next call. At later calls each text
  /// has one more token; with fixed sizes, some may stay as they are, and their logits mean nothing. As long as texts
  /// fit into the context, a model that remembers reads only the new tokens.
  at::Tensor logits_after(const std::vector<std::vector<int64_t>>& texts);

  /// Keeps only these texts from now on.
  void keep(const std::vector<int64_t>& rows);

 private:
  at::Tensor read_new(const std::vector<std::vector<int64_t>>& texts);
  at::Tensor read_one_token(const std::vector<std::vector<int64_t>>& texts);
  at::Tensor read_anew(const std::vector<std::vector<int64_t>>& texts);

  models::Model& model_;
  ContextWindow context_;
  models::Model::Memory memory_;
  int64_t read_ = 0;                     // tokens in memory, padding included
  bool is_padded_ = false;               // the memory of some text begins with padding
  std::vector<int64_t> begins_;          // begins of the texts in memory, behind padding
  std::optional<TokenPass> token_pass_;  // on a GPU, for all tokens after the first ones
  bool reads_anew_ = false;              // true once a text does not fit
};

}  // namespace gputrain::generation
