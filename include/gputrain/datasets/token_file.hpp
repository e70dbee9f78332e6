// Files of token ids: llm.c's .bin with a header, nanoGPT's raw .bin, Megatron's .bin with an .idx beside it.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "gputrain/data/read_only_file.hpp"

namespace gputrain::datasets {

/// Returns the header of llm.c's format for 2 or 4 bytes per token, before the tokens.
std::string token_file_header(int bytes_per_token, int64_t tokens);

class TokenFile {
 public:
  /// Opens a file; `raw_type` is the type of files without a header: "uint16" or "uint32". Throws Error(data) if the
  /// header does not match the file's size.
  TokenFile(const std::string& path, const std::string& raw_type);

  int64_t size() const noexcept { return count_; }
  int64_t vocabulary_size() const noexcept { return vocabulary_size_; }  // is implied by the format; 0: unknown
  const data::ReadOnlyFile& file() const noexcept { return file_; }
  const std::string& path() const noexcept { return file_.path(); }
  /// Returns the reason why these are hardly all of the token ids as they were written, to follow the path; empty: it
  /// looks right. Finds no tokens at all, or a file without a header that begins with one number alone, with
  /// floating-point, 8-bit or big-endian numbers, or with wider ones than those read: every second number read, or
  /// three of four, are then upper halves and 0, or nearly.
  std::string doubt() const;

  /// Reads tokens [first, first + tokens.size()), which must exist.
  void read(int64_t first, std::span<int64_t> tokens) const;

 private:
  void read_header(const std::string& raw_type);
  bool read_llmc_header();
  void read_megatron_index(const std::string& path);

  data::ReadOnlyFile file_;
  int64_t first_byte_ = 0;
  int64_t count_ = 0;
  int bytes_per_token_ = 2;
  bool signed_ = false;
  bool raw_ = false;  // true: without a header
  int64_t vocabulary_size_ = 0;
};

}  // namespace gputrain::datasets
