#include "normalizers.hpp"

#include "../utf8.hpp"
#include "bert_normalizer.hpp"
#include "gputrain/core/base64.hpp"
#include "pattern.hpp"
#include "precompiled.hpp"
#include "unicode.hpp"
#include "workspace.hpp"

namespace gputrain::tokenizers {
namespace {

Normalizer strip(bool left, bool right) {
  return [left, right](std::string& text, Workspace&) {
    size_t begin = 0, end = text.size();
    for (size_t at = 0; left && at < end && is_white_space(code_point(text, at));) begin = at;
    while (right && end > begin) {
      const size_t before = code_point_before(text, end);
      size_t at = before;
      if (!is_white_space(code_point(text, at))) break;
      end = before;
    }
    text = text.substr(begin, end - begin);
  };
}

void strip_accents(std::string& text, Workspace&) {
  std::string result;
  for (size_t at = 0; at < text.size();) {
    const int64_t point = code_point(text, at);
    if (!is_mark(point)) append_utf8(point, result);
  }
  text = std::move(result);
}

Normalizer replace(const JsonPart& part) {
  return [pattern = std::make_shared<Regex>(read_pattern(part.at("pattern"))), content = part.at("content").text()](
             std::string& text, Workspace& workspace) {
    std::string result;
    size_t taken = 0;
    pattern->each_match(text, workspace.matches, [&](size_t begin, size_t end) {
      result.append(text, taken, begin - taken).append(content);
      taken = end;
    });
    text = result.append(text, taken);
  };
}

Normalizer precompiled(const JsonPart& part) {
  const auto blob = from_base64(part.at("precompiled_charsmap").text());
  if (!blob) part.refuse("'precompiled_charsmap' is not Base64");
  return [rules = std::make_shared<PrecompiledRules>(*blob, part.file())](std::string& text, Workspace&) {
    text = rules->apply_to_graphemes(text);
  };
}

/// Control characters go, other kinds of white space become spaces.
void nmt(std::string& text, Workspace&) {
  std::string result;
  for (size_t at = 0; at < text.size();) {
    const int64_t point = code_point(text, at);
    const bool is_control = (point >= 1 && point <= 8) || point == 0xB || (point >= 0xE && point <= 0x1F) ||
                            point == 0x7F || point == 0x8F || point == 0x9F;
    const bool is_space = point == 9 || point == 0xA || point == 0xC || point == 0xD || point == 0x1680 ||
                          (point >= 0x200B && point <= 0x200F) || point == 0x2028 || point == 0x2029 ||
                          point == 0x2581 || point == 0xFEFF || point == 0xFFFD;
    if (!is_control) append_utf8(is_space ? ' ' : point, result);
  }
  text = std::move(result);
}

void byte_level(std::string& text, Workspace&) {
  std::string result;
  for (const char byte : text) append_utf8(byte_character(static_cast<unsigned char>(byte)), result);
  text = std::move(result);
}

}  // namespace

Normalizer normal_form(NormalForm form) {
  return [form](std::string& text, Workspace&) { text = normalized(text, form); };
}

Normalizer in_sequence(std::vector<Normalizer> steps) {
  if (steps.empty()) return nullptr;
  return [steps = std::move(steps)](std::string& text, Workspace& workspace) {
    for (const Normalizer& step : steps) step(text, workspace);
  };
}

Normalizer read_normalizer(const JsonPart& part) {
  const std::string type = part.type();
  if (type == "Sequence") {
    std::vector<Normalizer> steps;
    for (const JsonPart& step : part.at("normalizers").list())
      if (Normalizer normalizer = read_normalizer(step)) steps.push_back(std::move(normalizer));
    return in_sequence(std::move(steps));
  }
  if (type == "NFC") return normal_form(NormalForm::nfc);
  if (type == "NFD") return normal_form(NormalForm::nfd);
  if (type == "NFKC") return normal_form(NormalForm::nfkc);
  if (type == "NFKD") return normal_form(NormalForm::nfkd);
  if (type == "Lowercase") return [](std::string& text, Workspace&) { text = lower_case(text); };
  if (type == "Strip") return strip(part.flag("strip_left", true), part.flag("strip_right", true));
  if (type == "StripAccents") return strip_accents;
  if (type == "Replace") return replace(part);
  if (type == "ByteLevel") return byte_level;
  if (type == "Precompiled") return precompiled(part);
  if (type == "Nmt") return nmt;
  if (type == "Prepend")
    return [prefix = part.at("prepend").text()](std::string& text, Workspace&) {
      if (!text.empty()) text.insert(0, prefix);
    };
  if (type == "BertNormalizer") {
    const bool lowers_case = part.flag("lowercase", true);
    return bert_normalizer({.cleans = part.flag("clean_text", true),
                            .splits_chinese = part.flag("handle_chinese_chars", true),
                            .strips_accents = part.flag("strip_accents", lowers_case),
                            .lowers_case = lowers_case});
  }
  part.refuse("the normalizer '" + type + "' is not supported");
}

}  // namespace gputrain::tokenizers
