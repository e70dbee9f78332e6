// What a trained model reads and gives: all that is known of its training data but the samples.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gputrain/data/dataset.hpp"

namespace gputrain::data {

/// A run writes it as model.json, so that its model can be opened without the data.
struct Signature {
  Target gives = Target::label;
  int64_t longest = 0;                              // tokens that the model reads at once; 0: it reads none
  SampleLayout layout;                              // of a sample that the model learned from
  std::vector<std::string> class_names = {};        // in order of their numbers; empty: they have none
  std::optional<Normalization> normalization = {};  // of images
  std::shared_ptr<const tokenizers::Tokenizer> tokenizer = nullptr;  // not in text(), for its own files tell it

  bool reads_texts() const noexcept { return longest > 0; }

  /// `model`: what the model and its task read and give.
  static Signature of(const Dataset& learned, const InputSpec& model);
  /// Reads what text() writes. Throws Error(data), which names `where`, for anything else.
  static Signature from(std::string_view text, const std::string& where);
  /// JSON, for people and programs.
  std::string text() const;

  /// Training data with these properties, without samples.
  std::shared_ptr<const Dataset> without_samples() const;
};

}  // namespace gputrain::data
