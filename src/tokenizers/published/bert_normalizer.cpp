#include "bert_normalizer.hpp"

#include "../utf8.hpp"
#include "unicode.hpp"

namespace gputrain::tokenizers {
namespace {

bool is_chinese(int64_t point) {
  return (point >= 0x4E00 && point <= 0x9FFF) || (point >= 0x3400 && point <= 0x4DBF) ||
         (point >= 0x20000 && point <= 0x2A6DF) || (point >= 0x2A700 && point <= 0x2B73F) ||
         (point >= 0x2B740 && point <= 0x2B81F) || (point >= 0x2B920 && point <= 0x2CEAF) ||
         (point >= 0xF900 && point <= 0xFAFF) || (point >= 0x2F800 && point <= 0x2FA1F);
}

std::string cleaned(std::string_view text) {
  std::string result;
  for (size_t at = 0; at < text.size();) {
    const int64_t point = code_point(text, at);
    const bool is_space = point == '\t' || point == '\n' || point == '\r' || is_white_space(point);
    if (point == 0 || point == kReplacement || (!(point == '\t' || point == '\n' || point == '\r') && is_other(point)))
      continue;
    append_utf8(is_space ? ' ' : point, result);
  }
  return result;
}

std::string with_chinese_apart(std::string_view text) {
  std::string result;
  for (size_t at = 0; at < text.size();) {
    const int64_t point = code_point(text, at);
    if (is_chinese(point)) result += ' ';
    append_utf8(point, result);
    if (is_chinese(point)) result += ' ';
  }
  return result;
}

std::string without_accents(std::string_view text) {
  const std::string decomposed = normalized(text, NormalForm::nfd);
  std::string result;
  for (size_t at = 0; at < decomposed.size();) {
    const int64_t point = code_point(decomposed, at);
    if (!is_nonspacing(point)) append_utf8(point, result);
  }
  return result;
}

}  // namespace

Normalizer bert_normalizer(BertNormalizerOptions options) {
  return [options](std::string& text, Workspace&) {
    if (options.cleans) text = cleaned(text);
    if (options.splits_chinese) text = with_chinese_apart(text);
    if (options.strips_accents) text = without_accents(text);
    if (options.lowers_case) text = lower_case(text);
  };
}

}  // namespace gputrain::tokenizers
