// The tokenizer of an encoder as transformers reads it.
#pragma once

#include <filesystem>

#include "gputrain/setup/text_encoder.hpp"

namespace gputrain::app {

/// Copies the files of a published tokenizer, or writes a tokenizer.json for the words of the training data. Throws
/// Error(usage) for another tokenizer.
void write_encoder_tokenizer(const TextEncoder& encoder, const std::filesystem::path& folder);

}  // namespace gputrain::app
