#include "decoders.hpp"

#include <array>
#include <cstdlib>
#include <memory>
#include <optional>

#include "../utf8.hpp"
#include "subwords/model.hpp"
#include "subwords/workspace.hpp"
#include "text/pattern.hpp"
#include "text/unicode.hpp"

namespace gputrain::tokenizers {
namespace {

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
}

/// Applies `change` to each text by itself.
template <typename Change>
Decoder each(Change change) {
  return [change = std::move(change)](std::vector<std::string>& texts) {
    for (std::string& text : texts) change(text);
  };
}

void fuse(std::vector<std::string>& texts) {
  std::string all;
  for (const std::string& text : texts) all += text;
  texts.assign(1, std::move(all));
}

/// Reads a text that is looked for. An empty one is refused: it is everywhere, without end.
std::string text_to_find(const JsonPart& part, const char* key, const std::string& fallback) {
  std::string text = part.text(key, fallback);
  if (text.empty()) part.refuse("'" + std::string(key) + "' is empty");
  return text;
}

Decoder strip(const JsonPart& part) {
  const std::string content = text_to_find(part, "content", " ");
  return each([content, most_before = part.at("start").whole_number(),
               most_behind = part.at("stop").whole_number()](std::string& text) {
    size_t begin = 0, end = text.size();
    for (int64_t i = 0; i < most_before && std::string_view(text).substr(begin).starts_with(content); ++i)
      begin += content.size();
    for (int64_t i = 0; i < most_behind && std::string_view(text).substr(begin, end - begin).ends_with(content); ++i)
      end -= content.size();
    text = text.substr(begin, end - begin);
  });
}

Decoder replace(const JsonPart& part) {
  return each([pattern = std::make_shared<Regex>(read_pattern(part.at("pattern"))),
               content = part.at("content").text()](std::string& text) {
    MatchMemory memory;
    std::string result;
    size_t taken = 0;
    pattern->each_match(text, memory, [&](size_t begin, size_t end) {
      result.append(text, taken, begin - taken).append(content);
      taken = end;
    });
    text = result.append(text, taken);
  });
}

/// Returns the value of "<0x41>".
std::optional<char> byte_of(std::string_view text) {
  if (text.size() != 6 || !text.starts_with("<0x") || text[5] != '>') return std::nullopt;
  const std::string digits(text.substr(3, 2));
  char* end = nullptr;
  const long byte = std::strtol(digits.c_str(), &end, 16);
  return *end == '\0' ? std::optional(static_cast<char>(byte)) : std::nullopt;
}

void clean_up(std::string& text) {
  constexpr std::array<std::array<std::string_view, 2>, 11> kRules{{{" .", "."},
                                                                    {" ?", "?"},
                                                                    {" !", "!"},
                                                                    {" ,", ","},
                                                                    {" ' ", "'"},
                                                                    {" n't", "n't"},
                                                                    {" 'm", "'m"},
                                                                    {" do not", " don't"},
                                                                    {" 's", "'s"},
                                                                    {" 've", "'ve"},
                                                                    {" 're", "'re"}}};
  for (const auto& [from, to] : kRules) replace_all(text, from, to);
}

Decoder bpe_decoder(const std::string& suffix) {
  return [suffix](std::vector<std::string>& texts) {
    for (size_t i = 0; i < texts.size() && !suffix.empty(); ++i)
      replace_all(texts[i], suffix, i + 1 == texts.size() ? "" : " ");
  };
}

}  // namespace

std::string repaired(std::string_view text) {
  std::string result;
  const auto byte = [&](size_t i) -> int { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0; };
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    if (next_code_point(text, at) >= 0) {
      result.append(text, begin, at - begin);
      continue;
    }
    const int first = byte(at), second = byte(at + 1);
    const bool begins_well = first >= 0xC2 && first <= 0xF4 && (second & 0xC0) == 0x80 &&
                             !(first == 0xE0 && second < 0xA0) && !(first == 0xED && second > 0x9F) &&
                             !(first == 0xF0 && second < 0x90) && !(first == 0xF4 && second > 0x8F);
    at += !begins_well ? 1u : first >= 0xF0 && (byte(at + 2) & 0xC0) == 0x80 ? 3u : 2u;
    append_utf8(kReplacement, result);
  }
  return result;
}

Decoder byte_level_decoder() {
  return [](std::vector<std::string>& texts) {
    std::string all;
    for (const std::string& text : texts) {
      const size_t before = all.size();
      for (size_t at = 0; at < text.size();) {
        const int byte = character_byte(next_code_point(text, at));
        if (byte < 0) {  // not in the alphabet: an added token
          all.resize(before);
          all += text;
          break;
        }
        all += static_cast<char>(byte);
      }
    }
    texts.assign(1, repaired(all));
  };
}

Decoder word_piece_decoder(std::string inner_prefix, bool cleans_up) {
  return [inner_prefix = std::move(inner_prefix), cleans_up](std::vector<std::string>& texts) {
    for (size_t i = 0; i < texts.size(); ++i) {
      std::string& text = texts[i];
      if (i > 0 && text.starts_with(inner_prefix)) {
        text.erase(0, inner_prefix.size());
      } else if (i > 0) {
        text.insert(0, " ");
      }
      if (cleans_up) clean_up(text);
    }
  };
}

Decoder metaspace_decoder(std::string mark, bool drops_first) {
  return [mark = std::move(mark), drops_first](std::vector<std::string>& texts) {
    for (size_t i = 0; i < texts.size(); ++i) replace_all(texts[i], mark, i == 0 && drops_first ? "" : " ");
  };
}

Decoder byte_fallback_decoder() {
  return [](std::vector<std::string>& texts) {
    std::vector<std::string> result;
    std::string bytes;
    const auto end_bytes = [&] {
      const bool is_well_formed = repaired(bytes) == bytes;
      const size_t count = bytes.size();
      if (count > 0 && is_well_formed) result.push_back(std::move(bytes));
      for (size_t i = 0; i < count && !is_well_formed; ++i) append_utf8(kReplacement, result.emplace_back());
      bytes.clear();
    };
    for (std::string& text : texts) {
      if (const auto byte = byte_of(text)) {
        bytes += *byte;
        continue;
      }
      end_bytes();
      result.push_back(std::move(text));
    }
    end_bytes();
    texts = std::move(result);
  };
}

Decoder read_decoder(const JsonPart& part) {
  const std::string type = part.type();
  if (type == "Sequence") {
    std::vector<Decoder> steps;
    for (const JsonPart& step : part.at("decoders").list()) steps.push_back(read_decoder(step));
    return [steps](std::vector<std::string>& texts) {
      for (const Decoder& step : steps) step(texts);
    };
  }
  if (type == "ByteLevel") return byte_level_decoder();
  if (type == "ByteFallback") return byte_fallback_decoder();
  if (type == "Fuse") return fuse;
  if (type == "Strip") return strip(part);
  if (type == "Replace") return replace(part);
  if (type == "WordPiece") return word_piece_decoder(part.text("prefix", "##"), part.flag("cleanup", true));
  if (type == "BPEDecoder") return bpe_decoder(part.text("suffix", "</w>"));
  if (type == "Metaspace") {
    const std::string scheme = part.text("prepend_scheme", part.flag("add_prefix_space", true) ? "always" : "never");
    return metaspace_decoder(text_to_find(part, "replacement", std::string(kSpaceMark)), scheme != "never");
  }
  part.refuse("the decoder '" + type + "' is not supported");
}

}  // namespace gputrain::tokenizers
