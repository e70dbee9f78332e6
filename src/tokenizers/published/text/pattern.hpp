// The pattern of Split and Replace: a text or a regular expression.
#pragma once

#include "../files/json_part.hpp"
#include "regex.hpp"

namespace gputrain::tokenizers {

/// Reads {"String": "..."} or {"Regex": "..."}.
inline Regex read_pattern(const JsonPart& part) {
  const std::string where = part.file();
  if (part.has("String")) return {escaped(part.at("String").text()), RegexDialect::oniguruma, where};
  return {part.at("Regex").text(), RegexDialect::oniguruma, where};
}

}  // namespace gputrain::tokenizers
