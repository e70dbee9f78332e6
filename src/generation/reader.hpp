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

  /// Whether each number of texts costs time to prepare for, so that it should not change often.
  bool has_fixed_sizes() const noexcept { return token_pass_.has_value(); }

  /// Logits [texts, vocabulary] after each text, to be read before the next call. At later calls the texts are the same
  /// with one more token each; with fixed sizes, some may stay as they are, whose logits mean nothing. As long as texts
  /// fit into the context, a model that remembers reads only what is new.
  at::Tensor logits_after(const std::vector<std::vector<int64_t>>& texts);

  /// Goes on with these of the texts.
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
  std::vector<int64_t> begins_;          // of the texts in memory, behind padding
  std::optional<TokenPass> token_pass_;  // on a GPU, for all tokens after the first ones
  bool reads_anew_ = false;              // from the first text on that does not fit
};

}  // namespace gputrain::generation
