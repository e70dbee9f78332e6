// Normalizers: they change a text before it is cut into words.
#pragma once

#include <functional>

#include "../files/json_part.hpp"
#include "traced_text.hpp"
#include "unicode.hpp"

namespace gputrain::tokenizers {

struct Workspace;

/// Thread-safe. Null: none.
using Normalizer = std::function<void(TracedText& text, Workspace& workspace)>;

/// Reads "normalizer" of a tokenizer.json.
Normalizer read_normalizer(const JsonPart& part);

Normalizer normal_form(NormalForm form);
/// Applies several, in order. Null for none.
Normalizer in_sequence(std::vector<Normalizer> steps);

}  // namespace gputrain::tokenizers
