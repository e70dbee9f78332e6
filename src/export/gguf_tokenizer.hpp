// A published tokenizer as GGUF stores it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "gguf_file.hpp"

namespace gputrain::app {

/// Tokens, merges, special tokens and the chat template, from the folder of a published model; `vocabulary` is the
/// model's, which may be padded. Reads a BPE model, byte-level or with byte fallback, from tokenizer.json, from
/// vocab.json with merges.txt, or from SentencePiece's model. Throws Error(usage) for other tokenizers.
std::vector<std::pair<std::string, GgufValue>> gguf_tokenizer(const std::filesystem::path& folder, int64_t vocabulary);

}  // namespace gputrain::app
