#include "normalizers.hpp"

#include "../utf8.hpp"
#include "bert_normalizer.hpp"
#include "pattern.hpp"
#include "unicode.hpp"
#include "workspace.hpp"

namespace gputrain::tokenizers {
namespace {

Normalizer form(NormalForm form) {
  return [form](std::string& text, Workspace&) { text = normalized(text, form); };
}

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

void byte_level(std::string& text, Workspace&) {
  std::string result;
  for (const char byte : text) append_utf8(byte_character(static_cast<unsigned char>(byte)), result);
  text = std::move(result);
}

}  // namespace

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
  if (type == "NFC") return form(NormalForm::nfc);
  if (type == "NFD") return form(NormalForm::nfd);
  if (type == "NFKC") return form(NormalForm::nfkc);
  if (type == "NFKD") return form(NormalForm::nfkd);
  if (type == "Lowercase") return [](std::string& text, Workspace&) { text = lower_case(text); };
  if (type == "Strip") return strip(part.flag("strip_left", true), part.flag("strip_right", true));
  if (type == "StripAccents") return strip_accents;
  if (type == "Replace") return replace(part);
  if (type == "ByteLevel") return byte_level;
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
