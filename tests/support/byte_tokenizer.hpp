// A tokenizer.json that needs no training.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace gputrain::testing_support {

/// A byte-level tokenizer: a token for each byte, spelled as GPT-2 spells it, and special tokens from 256 on.
inline nlohmann::json byte_tokenizer(const std::vector<std::string>& special) {
  const auto utf8 = [](int point) {
    if (point < 0x80) return std::string{static_cast<char>(point)};
    return std::string{static_cast<char>(0xC0 | (point >> 6)), static_cast<char>(0x80 | (point & 0x3F))};
  };
  nlohmann::json vocabulary, added = nlohmann::json::array();
  int others = 256;
  for (int byte = 0; byte < 256; ++byte) {
    const bool is_printable = (byte > 32 && byte < 127) || (byte > 160 && byte != 173);
    vocabulary[utf8(is_printable ? byte : others++)] = byte;
  }
  for (const std::string& text : special)
    added.push_back({{"id", 256 + added.size()},
                     {"content", text},
                     {"special", true},
                     {"normalized", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"single_word", false}});
  const nlohmann::json cut{
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", true}};
  return {{"version", "1.0"},
          {"added_tokens", added},
          {"pre_tokenizer", cut},
          {"decoder", cut},
          {"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", nlohmann::json::array()}}}};
}

}  // namespace gputrain::testing_support
