// What a loader hands to a model and a task: one micro-batch of named tensors, and the numbers that make its loss
// exact.
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

// Fields that several rooms know. A format may have others; a model or a task asks for them by name.
inline constexpr const char* kImage = "image";    // [batch, channels, height, width] float, after Preprocess
inline constexpr const char* kTokens = "tokens";  // [batch, time] int64
/// What the loss compares with: [batch], [batch, time] or, for each pixel, [batch, height, width] int64.
inline constexpr const char* kTarget = "target";
/// [batch, time] int64: the place of each token in its text, where several texts share a row; each starts at 0.
inline constexpr const char* kPositions = "positions";
// Texts that are compared with those of kTokens: one that is like it, and one that is not.
inline constexpr const char* kPairTokens = "pair_tokens";
inline constexpr const char* kNegativeTokens = "negative_tokens";
// An answer that is worse than that of kTokens, to the same prompt, and what counts of it. Of kTokens, kTarget says
// that.
inline constexpr const char* kRejectedTokens = "rejected_tokens";
inline constexpr const char* kRejectedTarget = "rejected_target";
/// [batch, numbers] float64: what Task::reference() gave for each sample before training.
inline constexpr const char* kReference = "reference";
/// [batch, time] int64: which of the texts of a sample a token is from: 0 in a question, 1 in its answer.
inline constexpr const char* kTokenTypes = "token_types";

/// One tensor of a batch.
struct BatchField {
  std::string name;
  at::Tensor values;       // [batch, ...]
  at::Tensor counts = {};  // int64 [batch]: entries of each sample that are not padding; undefined: all have one size
  bool is_full = false;  // in every batch of a run, all samples have as many as the tensor; false: they may have fewer
  /// Of targets: at most so many are not kIgnoreIndex. Equal for equal sizes in nearly all batches of a run. 0:
  /// unknown.
  int64_t most_counted = 0;
};

struct Batch {
  std::vector<BatchField> fields;    // in the order of the dataset's layout; the first is the model's main input
  int64_t samples = 0;               // samples that are not padding
  int64_t samples_on_all_ranks = 0;  // of this micro-batch
  int64_t first_position = 0;        // of the first sample in the order of the epoch; the others follow it
  int64_t weight = 0;                // targets that count (samples, or unmasked tokens); may be 0
  bool is_part_of_texts = false;     // other ranks have the other positions (ops/context_attention.hpp)
  bool has_one_text_a_row = false;   // of such parts: kPositions then are [1, time], those of all rows
  int64_t texts_in_row = 0;          // the most texts in a row that kPositions tells apart; 0: unknown
  int64_t longest_text = 0;          // the most tokens of one of them
  int64_t first_unit = 0;            // where a model begins
  at::Tensor hidden = {};            // what the unit before gave; undefined: it begins at its first unit
  /// A copy to the device that is in progress; null: the tensors are there.
  std::shared_ptr<const c10::Event> arrival = nullptr;

  /// Null if there is no field of this name.
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

/// What a model reads from a batch, and what it learns from it.
struct InputSpec {
  std::string field = {};              // "tokens" or "image"; empty: the first field, whatever it is
  int64_t longest = 0;                 // entries of that field in a sample; 0: as many as the data gives
  Target target = Target::next_token;  // of images, only Target::pixels means something

  bool reads_tokens() const noexcept { return field == kTokens; }
};

}  // namespace gputrain
