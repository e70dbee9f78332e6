// What readers of labels share.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

namespace gputrain::records {

/// Throws Error(data) without a place, which is told by whoever knows the record.
[[noreturn]] void refuse_label(const std::string& what, const std::string& hint = {});

/// The label as a message has it: as JSON, not too long.
std::string shown(const nlohmann::ordered_json& label);

/// Without blanks at its ends.
std::string trimmed(const std::string& text);

}  // namespace gputrain::records
