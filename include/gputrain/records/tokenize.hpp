// Conversion of text into a token file, for `format: tokens`.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace gputrain::records {

struct TokenizeRequest {
  std::vector<std::string> files;  // input: a document for the "text" of each record, or for each other file
  std::string tokenizer;           // file or folder of a published tokenizer
  std::string output;
  std::optional<std::string> end;  // spelling of the token after each document; "none"; empty: the model's own
  int threads = 1;
};

struct TokenizeReport {
  int64_t documents = 0, tokens = 0, text_bytes = 0;
  int64_t vocabulary_size = 0;
  int bytes_per_token = 2;
};

/// Writes llm.c's format, with 16-bit or 32-bit numbers by the size of the vocabulary. The output appears when it is
/// complete. Calls `progress` between blocks of some MiB. Throws Error(data) for a file or line that cannot be used,
/// Error(usage) if the end token is not known.
TokenizeReport tokenize(const TokenizeRequest& request, const std::function<void(const TokenizeReport&)>& progress);

}  // namespace gputrain::records
