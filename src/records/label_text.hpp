// Functions that readers of labels share.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

namespace gputrain::records {

/// Throws Error(data) without a place, which the caller adds that knows the record.
[[noreturn]] void refuse_label(const std::string& what, const std::string& hint = {});

/// Returns the label for a message: as JSON, not too long.
std::string shown(const nlohmann::ordered_json& label);

/// Returns the text without blanks at its ends.
std::string trimmed(const std::string& text);

}  // namespace gputrain::records
