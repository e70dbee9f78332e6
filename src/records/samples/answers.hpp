// Records of answers to prompts, in the forms of TRL's data.
#pragma once

#include <string>
#include <vector>

#include "../tokens/learned_text.hpp"
#include "gputrain/data/options.hpp"

namespace gputrain::records {

/// Hint for a record without answers.
inline constexpr const char* kAnswersHint =
    "prompt, chosen and rejected, or prompt, completion and label; data.text.columns names others";

std::vector<std::string> columns_of_answers(const data::ColumnNames& names);
/// Returns the columns from which the prompt of a record is made, and the variables of its chat template.
std::vector<std::string> columns_of_prompt(const nlohmann::ordered_json& record, const data::ColumnNames& names);

/// Prompt with the better of two answers, and with the worse one. Without a prompt column, the prompt is the common
/// begin of both answers. Throws Error(data).
struct Preference {
  Dialogue chosen, rejected;
};
Preference preference_in(const nlohmann::ordered_json& record, const data::ColumnNames& names);

struct Rating {
  Dialogue dialogue;
  bool is_good = false;
};
/// Returns that of a completion with a label, or those of two answers, of which the chosen is good. Throws Error(data).
std::vector<Rating> ratings_in(const nlohmann::ordered_json& record, const data::ColumnNames& names);

}  // namespace gputrain::records
