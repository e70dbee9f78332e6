// Published tokenizer in GGUF's format.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "gguf_file.hpp"
#include "gputrain/trained/model.hpp"

namespace gputrain::app {

/// Returns tokens, merges, and the tokens that begin and end a text or a turn, for a model with a published tokenizer;
/// its vocabulary may be padded. Reads a BPE model, byte-level or with byte fallback, from tokenizer.json, from
/// vocab.json with merges.txt, or from SentencePiece's model. Throws Error(usage) for other tokenizers.
std::vector<std::pair<std::string, GgufValue>> gguf_tokenizer(const trained::Model& model);

}  // namespace gputrain::app
