#include "normalizers.hpp"

#include "../subwords/workspace.hpp"
#include "gputrain/core/base64.hpp"
#include "pattern.hpp"
#include "pre_tokenizers.hpp"
#include "precompiled.hpp"
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

struct BertNormalizerOptions {
  bool cleans = true;
  bool splits_chinese = true;
  bool strips_accents = true;
  bool lowers_case = true;
};

/// BERT's normalisation: cleans a text, sets CJK characters apart, strips accents, makes lower case.
Normalizer bert_normalizer(BertNormalizerOptions options) {
  return [options](TracedText& text, Workspace&) {
    if (options.cleans) clean(text);
    if (options.splits_chinese) set_chinese_apart(text);
    if (options.strips_accents) drop_accents(text);
    if (options.lowers_case) lower_case(text);
  };
}

Normalizer strip(bool left, bool right) {
  return [left, right](TracedText& traced, Workspace&) {
    const std::string& text = traced.text;
    size_t begin = 0, end = text.size();
    for (size_t at = 0; left && at < end && is_white_space(code_point(text, at));) begin = at;
    while (right && end > begin) {
      const size_t before = code_point_before(text, end);
      size_t at = before;
      if (!is_white_space(code_point(text, at))) break;
      end = before;
    }
    Rewriter result(traced);
    result.keep(begin, end);
    traced = result.finish();
  };
}

void strip_accents(TracedText& text, Workspace&) {
  rewrite_points(text, [](Rewriter& result, int64_t point, size_t begin, size_t end) {
    if (!is_mark(point)) result.keep(begin, end);
  });
}

Normalizer replace(const JsonPart& part) {
  return [pattern = std::make_shared<Regex>(read_pattern(part.at("pattern"))), content = part.at("content").text()](
             TracedText& text, Workspace& workspace) {
    Rewriter result(text);
    size_t taken = 0;
    pattern->each_match(text.text, workspace.matches, [&](size_t begin, size_t end) {
      result.keep(taken, begin);
      result.put(content, begin, end);
      taken = end;
    });
    result.keep(taken, text.text.size());
    text = result.finish();
  };
}

Normalizer precompiled(const JsonPart& part) {
  const auto blob = from_base64(part.at("precompiled_charsmap").text());
  if (!blob) part.refuse("'precompiled_charsmap' is not Base64");
  return [rules = std::make_shared<PrecompiledRules>(*blob, part.file())](TracedText& text, Workspace&) {
    rules->apply_to_graphemes(text);
  };
}

/// Removes control characters, and turns other kinds of white space into spaces.
void nmt(TracedText& text, Workspace&) {
  rewrite_points(text, [](Rewriter& result, int64_t point, size_t begin, size_t end) {
    const bool is_control = (point >= 1 && point <= 8) || point == 0xB || (point >= 0xE && point <= 0x1F) ||
                            point == 0x7F || point == 0x8F || point == 0x9F;
    const bool is_space = point == 9 || point == 0xA || point == 0xC || point == 0xD || point == 0x1680 ||
                          (point >= 0x200B && point <= 0x200F) || point == 0x2028 || point == 0x2029 ||
                          point == 0x2581 || point == 0xFEFF || point == 0xFFFD;
    if (!is_control) result.put(is_space ? ' ' : point, begin, end);
  });
}

}  // namespace

Normalizer normal_form(NormalForm form) {
  return [form](TracedText& text, Workspace&) { normalize(text, form); };
}

Normalizer in_sequence(std::vector<Normalizer> steps) {
  if (steps.empty()) return nullptr;
  return [steps = std::move(steps)](TracedText& text, Workspace& workspace) {
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
  if (type == "Lowercase") return [](TracedText& text, Workspace&) { lower_case(text); };
  if (type == "Strip") return strip(part.flag("strip_left", true), part.flag("strip_right", true));
  if (type == "StripAccents") return strip_accents;
  if (type == "Replace") return replace(part);
  if (type == "ByteLevel") return [](TracedText& text, Workspace&) { text = in_alphabet(text.text, text.trace()); };
  if (type == "Precompiled") return precompiled(part);
  if (type == "Nmt") return nmt;
  if (type == "Prepend")
    return [prefix = part.at("prepend").text()](TracedText& text, Workspace&) {
      if (!text.text.empty()) text = with_prefix(prefix, text.text, text.trace());
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
