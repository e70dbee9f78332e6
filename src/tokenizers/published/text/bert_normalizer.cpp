#include "bert_normalizer.hpp"

#include "unicode.hpp"

namespace gputrain::tokenizers {
namespace {

bool is_chinese(int64_t point) {
  return (point >= 0x4E00 && point <= 0x9FFF) || (point >= 0x3400 && point <= 0x4DBF) ||
         (point >= 0x20000 && point <= 0x2A6DF) || (point >= 0x2A700 && point <= 0x2B73F) ||
         (point >= 0x2B740 && point <= 0x2B81F) || (point >= 0x2B920 && point <= 0x2CEAF) ||
         (point >= 0xF900 && point <= 0xFAFF) || (point >= 0x2F800 && point <= 0x2FA1F);
}

void clean(TracedText& text) {
  rewrite_points(text, [](Rewriter& result, int64_t point, size_t begin, size_t end) {
    const bool is_break = point == '\t' || point == '\n' || point == '\r';
    if (point == 0 || point == kReplacement || (!is_break && is_other(point))) return;
    result.put(is_break || is_white_space(point) ? ' ' : point, begin, end);
  });
}

void set_chinese_apart(TracedText& text) {
  rewrite_points(text, [](Rewriter& result, int64_t point, size_t begin, size_t end) {
    if (is_chinese(point)) result.put(' ', begin, begin);
    result.keep(begin, end);
    if (is_chinese(point)) result.put(' ', end, end);
  });
}

void drop_accents(TracedText& text) {
  normalize(text, NormalForm::nfd);
  rewrite_points(text, [](Rewriter& result, int64_t point, size_t begin, size_t end) {
    if (!is_nonspacing(point)) result.keep(begin, end);
  });
}

}  // namespace

Normalizer bert_normalizer(BertNormalizerOptions options) {
  return [options](TracedText& text, Workspace&) {
    if (options.cleans) clean(text);
    if (options.splits_chinese) set_chinese_apart(text);
    if (options.strips_accents) drop_accents(text);
    if (options.lowers_case) lower_case(text);
  };
}

}  // namespace gputrain::tokenizers
