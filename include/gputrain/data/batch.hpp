// The micro-batch that a loader hands to a model and a task: named tensors, and the numbers that make its loss exact.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include "gputrain/core/error.hpp"
#include "gputrain/data/target.hpp"

namespace c10 {
struct Event;
}

namespace gputrain {

/// Class number of a target that is not learned from and not counted: padding, bad samples, masked tokens.
inline constexpr int64_t kIgnoreIndex = -100;

// Names of fields that several rooms know. A format may have others; a model or a task asks for them by name.
inline constexpr const char* kImage = "image";    // [batch, channels, height, width] float, after Preprocess
inline constexpr const char* kTokens = "tokens";  // [batch, time] int64
/// Targets of the loss: int64 [batch], [batch, time] or, for each pixel, [batch, height, width].
inline constexpr const char* kTarget = "target";
/// [batch, time] int64: position of each token in its text, from 0, where several texts share a row.
inline constexpr const char* kPositions = "positions";
// Texts to compare with those of kTokens: one that is alike, and one that is not.
inline constexpr const char* kPairTokens = "pair_tokens";
inline constexpr const char* kNegativeTokens = "negative_tokens";
// Worse answer than that in kTokens, to the same prompt, and its target; kTarget is that of the better one.
inline constexpr const char* kRejectedTokens = "rejected_tokens";
inline constexpr const char* kRejectedTarget = "rejected_target";
/// [batch, numbers] float64: numbers that Task::reference() gave for each sample before training.
inline constexpr const char* kReference = "reference";
/// [batch, time] int64: number of the text in its sample that a token is from: 0 in a question, 1 in its answer.
inline constexpr const char* kTokenTypes = "token_types";

struct BatchField {
  std::string name;
  at::Tensor values;       // [batch, ...]
  at::Tensor counts = {};  // int64 [batch]: entries of each sample that are not padding; undefined: all have one size
  bool is_full = false;    // true: all samples of all batches of a run fill the tensor; false: they may have fewer
  /// Upper bound of the targets that are not kIgnoreIndex; 0: unknown. Nearly all batches of a run with equal sizes
  /// have the same one.
  int64_t most_counted = 0;
};

struct Batch {
  std::vector<BatchField> fields;    // fields in the order of the dataset's layout; the first is the model's main input
  int64_t samples = 0;               // samples that are not padding
  int64_t samples_on_all_ranks = 0;  // samples of this micro-batch on all ranks that are not padding
  int64_t first_position = 0;        // position of the first sample in the order of the epoch; the others follow it
  int64_t weight = 0;                // targets that count (samples, or unmasked tokens); may be 0
  bool is_part_of_texts = false;     // true: other ranks have the other positions (ops/context_attention.hpp)
  bool has_one_text_a_row = false;   // true, of such parts: kPositions are [1, time], for all rows
  int64_t texts_in_row = 0;          // maximum of texts in a row that kPositions tells apart; 0: unknown
  int64_t longest_text = 0;          // maximum of tokens of one of them
  int64_t first_unit = 0;            // unit where the model begins
  at::Tensor hidden = {};            // output of the unit before; undefined: the model begins at its first unit
  /// Copy to the device that is in progress; null: the tensors are there.
  std::shared_ptr<const c10::Event> arrival = nullptr;

  /// Returns null if there is no field of this name.
  const BatchField* find(std::string_view name) const noexcept {
    const auto found =
        std::find_if(fields.begin(), fields.end(), [&](const auto& field) { return field.name == name; });
    return found == fields.end() ? nullptr : &*found;
  }

  /// Throws an internal error that names the fields there are.
  const at::Tensor& tensor(std::string_view name) const {
    if (const BatchField* field = find(name)) return field->values;
    std::string names;
    for (const BatchField& field : fields) names += (names.empty() ? "" : ", ") + field.name;
    assertion_failed("field", __FILE__, __LINE__,
                     "the batch has no field '" + std::string(name) + "'; it has " + names);
  }

  const at::Tensor& input() const { return fields.front().values; }
};

/// Input that a model reads from a batch, and the target that it learns.
struct InputSpec {
  std::string field = {};              // "tokens" or "image"; empty: the first field, whatever it is
  int64_t longest = 0;                 // entries of that field in a sample; 0: as many as the data gives
  Target target = Target::next_token;  // target to learn; for images, only Target::pixels means something

  bool reads_tokens() const noexcept { return field == kTokens; }
};

}  // namespace gputrain
