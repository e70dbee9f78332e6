// The file formats of published tokenizers besides tokenizer.json.
#pragma once

#include <string>
#include <string_view>

#include "../parts.hpp"

namespace gputrain::tokenizers {

/// Reads vocab.json and merges.txt of GPT-2 and RoBERTa from their folder.
PublishedTokenizer::Parts read_vocabulary_and_merges(const std::string& folder);
/// Returns the tokenizer.json that they come to.
nlohmann::json json_of_vocabulary_and_merges(const std::string& folder);
/// Reads vocab.txt of BERT, with a tokenizer_config.json beside it if there is one.
PublishedTokenizer::Parts read_bert_vocabulary(const std::string& file);

/// Reads a line "dG9rZW4= 0" for each token. The file does not say how text is cut; the number of its tokens tells.
PublishedTokenizer::Parts read_tiktoken(std::string_view text, const std::string& file);
/// Mistral's tekken.json.
PublishedTokenizer::Parts read_tekken(const JsonPart& root);

/// Reads a SentencePiece model, a message of protocol buffers.
PublishedTokenizer::Parts read_sentence_piece(std::string_view message, const std::string& file);
SentencePieces read_sentence_pieces(std::string_view message, const std::string& file);

}  // namespace gputrain::tokenizers
