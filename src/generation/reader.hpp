// Reads the tokens of texts that grow together, and gives the logits that follow each.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "gputrain/generation/generate.hpp"
#include "gputrain/models/model.hpp"

namespace gputrain::generation {

class Reader {
 public:
  Reader(models::Model& model, const Context& context) : model_(model), context_(context) {}

  /// Logits [texts, vocabulary] after each text. At later calls the texts are the same with one more token each. As
  /// long as they fit into the context, a model that remembers reads only what is new.
  at::Tensor logits_after(const std::vector<std::vector<int64_t>>& texts);

  /// Goes on with these of the texts.
  void keep(const std::vector<int64_t>& rows);

 private:
  at::Tensor read_new(const std::vector<std::vector<int64_t>>& texts);
  at::Tensor read_anew(const std::vector<std::vector<int64_t>>& texts);

  models::Model& model_;
  Context context_;
  models::Model::Memory memory_;
  int64_t read_ = 0;         // tokens in memory, padding included
  bool is_padded_ = false;   // the memory of some text begins with padding
  bool reads_anew_ = false;  // from the first text on that does not fit
};

}  // namespace gputrain::generation
