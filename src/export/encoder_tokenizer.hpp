// Tokenizer of an encoder in the format of transformers.
#pragma once

#include <filesystem>

#include "gputrain/trained/model.hpp"

namespace gputrain::app {

/// Copies the files of a published tokenizer, or writes a tokenizer.json for the words of the training data. Throws
/// Error(usage) for another tokenizer.
void write_encoder_tokenizer(const trained::Model& model, const std::filesystem::path& folder);

}  // namespace gputrain::app
