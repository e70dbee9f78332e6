#include "regex.hpp"

#include <array>
#include <cctype>
#include <new>

#include "../files/json_part.hpp"
#include "gputrain/core/error.hpp"
#include "unicode.hpp"

namespace gputrain::tokenizers {
namespace {

// Members of character classes. PCRE2's own differ: its \s has U+180E, its \w lacks marks.
constexpr std::string_view kSpace =
    R"(\t-\r\x20\x{85}\x{A0}\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}\x{205F}\x{3000})";
constexpr std::string_view kNoSpace =
    R"(\x00-\x08\x0E-\x1F!-\x{84}\x{86}-\x{9F}\x{A1}-\x{167F}\x{1681}-\x{1FFF}\x{200B}-\x{2027}\x{202A}-\x{202E})"
    R"(\x{2030}-\x{205E}\x{2060}-\x{2FFF}\x{3001}-\x{10FFFF})";
#define LETTERS_MARKS_AND_THE_LIKE \
  R"(\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc}\x{24B6}-\x{24E9}\x{1F130}-\x{1F149}\x{1F150}-\x{1F169}\x{1F170}-\x{1F189})"
constexpr std::string_view kWord = LETTERS_MARKS_AND_THE_LIKE R"(\xB2\xB3\xB9\xBC-\xBE)";  // Oniguruma's: also ² and ½
constexpr std::string_view kRustWord = LETTERS_MARKS_AND_THE_LIKE R"(\x{200C}\x{200D})";
#undef LETTERS_MARKS_AND_THE_LIKE

/// Translates a pattern into PCRE2's dialect.
class Translation {
 public:
  Translation(std::string_view pattern, RegexDialect dialect, const std::string& where)
      : pattern_(pattern), dialect_(dialect), word_(dialect == RegexDialect::rust ? kRustWord : kWord), where_(where) {}

  std::string run() {
    while (at_ < pattern_.size()) {
      const char c = pattern_[at_];
      if (c == '\\') {
        escape();
      } else if (is_in_class_) {
        in_class(c);
      } else if (c == '[') {
        open_class();
      } else if (c == '}' && is_repeated_interval()) {
        repeat_interval();
      } else {
        copy(1);
      }
    }
    return std::move(result_);
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    throw Error(ExitCode::data, {.what = "the regular expression has " + what +
                                         ", which is not supported: " + shortened(pattern_, 1000),
                                 .where = where_});
  }

  bool follows(std::string_view text) const { return pattern_.substr(at_).starts_with(text); }
  void copy(size_t bytes) {
    result_ += pattern_.substr(at_, bytes);
    at_ += bytes;
  }

  void open_class() {
    is_in_class_ = true;
    copy(follows("[^") ? 2 : 1);
    if (follows("]")) copy(1);  // a member if it stands first
  }

  void in_class(char c) {
    if (follows("[:")) {
      const size_t end = pattern_.find(":]", at_);
      if (end == std::string_view::npos) refuse("an open class");
      copy(end + 2 - at_);
      return;
    }
    if (c == '[' || follows("&&")) refuse("a class within a class");
    if (c == ']') is_in_class_ = false;
    copy(1);
  }

  void escape() {
    const char c = at_ + 1 < pattern_.size() ? pattern_[at_ + 1] : '\0';
    switch (c) {
      case 's':
        return put(kSpace, false);
      case 'S':
        return is_in_class_ ? put(kNoSpace, false) : put(kSpace, true);
      case 'w':
        return put(word_, false);
      case 'W':
        if (is_in_class_) refuse("\\W in a class");
        return put(word_, true);
      case 'b':
      case 'B':
        if (is_in_class_) break;
        return put_boundary(c == 'b');
      case 'u':
        result_ += "\\x{" + std::string(pattern_.substr(at_ + 2, 4)) + "}";
        at_ = std::min(at_ + 6, pattern_.size());
        return;
      case 'C':  // a byte, and bytes of a character must not be cut apart
      case 'K':  // a match that ends before it begins
      case 'h':
      case 'H':
        refuse(std::string("\\") + c);
      default:
        break;
    }
    copy(at_ + 1 < pattern_.size() ? 1 + code_point_bytes(c) : 1);
  }

  void put(std::string_view members, bool is_negated) {
    if (is_in_class_) {
      result_ += members;
    } else {
      result_ += (is_negated ? "[^" : "[") + std::string(members) + "]";
    }
    at_ += 2;
  }

  void put_boundary(bool is_boundary) {
    const std::string word = "[" + std::string(word_) + "]";
    const std::string before = "(?<=" + word + ")", not_before = "(?<!" + word + ")";
    const std::string ahead = "(?=" + word + ")", not_ahead = "(?!" + word + ")";
    result_ += is_boundary ? "(?:" + before + not_ahead + "|" + not_before + ahead + ")"
                           : "(?:" + before + ahead + "|" + not_before + not_ahead + ")";
    at_ += 2;
  }

  /// Returns whether this is such an interval: Oniguruma reads {1,3}+ as one or more times {1,3}, PCRE2 as possessive.
  bool is_repeated_interval() const {
    if (dialect_ != RegexDialect::oniguruma || !follows("}+")) return false;
    const size_t open = result_.rfind('{');
    return open != std::string::npos && open + 1 < result_.size() &&
           result_.find_first_not_of("0123456789,", open + 1) == std::string::npos;
  }
  void repeat_interval() {
    const size_t open = result_.rfind('{');
    const std::string least = result_.substr(open + 1, result_.find_first_of(",", open) - open - 1);
    if (least != "0" && least != "1") refuse("a repeated interval");
    result_.resize(open);
    result_ += least == "0" ? "*" : "+";
    at_ += 2;
  }

  std::string_view pattern_;
  RegexDialect dialect_;
  std::string_view word_;  // members of \w
  const std::string& where_;
  std::string result_;
  size_t at_ = 0;
  bool is_in_class_ = false;
};

std::string message_of(int error) {
  std::array<unsigned char, 256> message{};
  pcre2_get_error_message(error, message.data(), message.size());
  return reinterpret_cast<const char*>(message.data());
}

}  // namespace

MatchMemory::MatchMemory()
    : data_(pcre2_match_data_create(1, nullptr), &pcre2_match_data_free),
      stack_(pcre2_jit_stack_create(32 << 10, 64 << 20, nullptr), &pcre2_jit_stack_free),
      context_(pcre2_match_context_create(nullptr), &pcre2_match_context_free) {
  if (!data_ || !stack_ || !context_) throw std::bad_alloc();
  pcre2_jit_stack_assign(context_.get(), nullptr, stack_.get());
}

Regex::Regex(std::string_view pattern, RegexDialect dialect, const std::string& where)
    : where_(where), code_(nullptr, &pcre2_code_free) {
  const std::string translated = Translation(pattern, dialect, where).run();
  const uint32_t options = PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C |
                           (dialect == RegexDialect::oniguruma ? PCRE2_MULTILINE : PCRE2_DOLLAR_ENDONLY);
  const std::unique_ptr<pcre2_compile_context, decltype(&pcre2_compile_context_free)> context(
      pcre2_compile_context_create(nullptr), &pcre2_compile_context_free);
  if (!context) throw std::bad_alloc();
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  int error = 0;
  size_t offset = 0;
  code_.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(), options, &error,
                            &offset, context.get()));
  if (!code_)
    throw Error(
        ExitCode::data,
        {.what = "not a regular expression (" + message_of(error) + "): " + shortened(pattern, 1000), .where = where});
  pcre2_jit_compile(code_.get(), PCRE2_JIT_COMPLETE);  // if this fails, the interpreter matches
}

bool Regex::find(std::string_view text, size_t from, MatchMemory& memory, Match& match) const {
  const int found = pcre2_match(code_.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), from,
                                PCRE2_NO_UTF_CHECK, memory.data_.get(), memory.context_.get());
  if (found == PCRE2_ERROR_NOMATCH) return false;
  if (found < 0)
    throw Error(ExitCode::data,
                {.what = "the regular expression fails on a text: " + message_of(found), .where = where_});
  const size_t* bounds = pcre2_get_ovector_pointer(memory.data_.get());
  match = {bounds[0], bounds[1]};
  return true;
}

size_t Regex::after(std::string_view text, size_t at) {
  return at < text.size() ? at + code_point_bytes(text[at]) : at + 1;
}

std::string escaped(std::string_view text) {
  std::string pattern;
  for (const char c : text) {
    if (std::ispunct(static_cast<unsigned char>(c)) != 0) pattern += '\\';
    pattern += c;
  }
  return pattern;
}

}  // namespace gputrain::tokenizers
