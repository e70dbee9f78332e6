// Regular expressions of tokenizers, run by PCRE2's compiler to machine code.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

namespace gputrain::tokenizers {

/// The dialect of a pattern. Dialects differ from PCRE2's, so the pattern is translated.
enum class RegexDialect {
  oniguruma,  // tokenizer.json: ^ and $ match at lines, {1,3}+ repeats
  rust        // tiktoken: $ matches only at the end, {1,3}+ is possessive
};

/// The memory with which one thread matches; not for two at once.
class MatchMemory {
 public:
  MatchMemory();

 private:
  friend class Regex;
  std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)> data_;
  std::unique_ptr<pcre2_jit_stack, decltype(&pcre2_jit_stack_free)> stack_;
  std::unique_ptr<pcre2_match_context, decltype(&pcre2_match_context_free)> context_;
};

/// Immutable, so thread-safe.
class Regex {
 public:
  /// `where` names the pattern's place in messages. Throws Error(data) if it is no pattern, or one we cannot translate.
  Regex(std::string_view pattern, RegexDialect dialect, const std::string& where);

  struct Match {
    size_t begin, end;
  };
  /// Calls take(begin, end) for each match in well-formed UTF-8, from left to right. An empty match directly behind
  /// another match is none.
  template <typename Take>
  void each_match(std::string_view text, MatchMemory& memory, Take&& take) const {
    constexpr size_t kNowhere = static_cast<size_t>(-1);
    size_t last_end = kNowhere;
    for (size_t from = 0; from <= text.size();) {
      Match match{};
      if (!find(text, from, memory, match)) return;
      if (match.begin == match.end && match.begin == last_end) {
        from = after(text, from);
        continue;
      }
      from = last_end = match.end;
      take(match.begin, match.end);
    }
  }

 private:
  bool find(std::string_view text, size_t from, MatchMemory& memory, Match& match) const;
  static size_t after(std::string_view text, size_t at);

  std::string where_;
  std::unique_ptr<pcre2_code, decltype(&pcre2_code_free)> code_;
};

/// Makes a pattern that matches this text itself.
std::string escaped(std::string_view text);

}  // namespace gputrain::tokenizers
