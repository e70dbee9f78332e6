// Signature of a trained model: its input and output, and all that is known of its training data but the samples.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gputrain/data/dataset.hpp"

namespace gputrain::data {

/// Content of model.json, which a run writes so that its model can be opened without the data.
struct Signature {
  Target gives = Target::label;
  int64_t longest = 0;                              // tokens that the model reads at once; 0: it reads none
  SampleLayout layout;                              // layout of a sample that the model learned from
  std::vector<std::string> class_names = {};        // names in order of the classes' numbers; empty: they have none
  std::optional<Normalization> normalization = {};  // statistics of images
  std::shared_ptr<const tokenizers::Tokenizer> tokenizer = nullptr;  // not in text(): its own files store it

  bool reads_texts() const noexcept { return longest > 0; }

  /// Describes a model that learned from `learned`; `model` is what it and its task read and give.
  static Signature of(const Dataset& learned, const InputSpec& model);
  /// Reads what text() writes. Throws Error(data), which names `where`, for anything else.
  static Signature from(std::string_view text, const std::string& where);
  /// Returns JSON, for people and programs.
  std::string text() const;

  /// Returns training data with these properties, without samples.
  std::shared_ptr<const Dataset> without_samples() const;
};

}  // namespace gputrain::data
