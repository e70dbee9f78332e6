#include "lexer.hpp"

#include <algorithm>
#include <optional>

#include "../values/text.hpp"

namespace gputrain::chat {
namespace {

using Kind = Token::Kind;

/// Lines end with "\n", and the last has no end.
std::string normalized_lines(std::string_view source) {
  std::string text;
  text.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    const bool is_return = source[i] == '\r';
    if (is_return && i + 1 < source.size() && source[i + 1] == '\n') ++i;
    text += is_return ? '\n' : source[i];
  }
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

bool is_decimal(char c) { return c >= '0' && c <= '9'; }
bool is_sign(char c) { return c == '-' || c == '+'; }

int hex_value(char c) {
  if (is_decimal(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : text_(normalized_lines(source)) {}

  std::vector<Token> run() {
    while (at_ < text_.size()) read_data();
    push(Kind::end, {});
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void fail(const std::string& what) const { throw SyntaxProblem{what, line_}; }
  char at(size_t position) const { return position < text_.size() ? text_[position] : '\0'; }
  bool sees(std::string_view what, size_t position) const {
    return std::string_view(text_).substr(std::min(position, text_.size())).starts_with(what);
  }
  void push(Kind kind, std::string text) { tokens_.push_back({kind, std::move(text), line_}); }

  void move_to(size_t position) {
    const auto begin = text_.begin();
    line_ += static_cast<int>(
        std::count(begin + static_cast<std::ptrdiff_t>(at_), begin + static_cast<std::ptrdiff_t>(position), '\n'));
    at_ = position;
  }
  size_t after_space(size_t position) const {
    while (position < text_.size()) {
      size_t next = position;
      if (!is_space(next_point(text_, next))) break;
      position = next;
    }
    return position;
  }
  /// Moves behind the text that ends with `close` at `position`, and behind the white space that goes with it.
  void move_behind_end(size_t position, std::string_view close, char sign) {
    position += close.size();
    if (sign == '-') position = after_space(position);
    if (sign == '\0' && close != "}}" && at(position) == '\n') ++position;
    begins_line_ = at(position - 1) == '\n';
    move_to(position);
  }

  void read_data();
  void push_data(std::string_view data, char sign, bool is_output);
  bool read_raw(size_t tag);
  std::optional<size_t> word_tag(size_t tag, std::string_view word) const;
  void read_comment();
  void read_tag(bool is_output);
  bool ends_tag(bool is_output);
  void read_token();
  bool read_name();
  bool read_number();
  void read_string();
  void read_escape(std::string& value);
  void read_symbol();

  std::string text_;
  size_t at_ = 0;
  int line_ = 1;
  bool begins_line_ = true;  // the last text read ended a line
  std::string open_;         // the brackets that must close before the tag ends
  std::vector<Token> tokens_;
};

void Lexer::read_data() {
  size_t tag = at_;
  do tag = text_.find('{', tag);
  while (tag != std::string::npos && at(tag + 1) != '{' && at(tag + 1) != '%' && at(tag + 1) != '#' && ++tag > 0);
  const std::string_view rest = std::string_view(text_).substr(at_);
  if (tag == std::string::npos) {
    push(Kind::data, std::string(rest));
    return move_to(text_.size());
  }
  const char kind = at(tag + 1), sign = is_sign(at(tag + 2)) ? at(tag + 2) : '\0';
  push_data(rest.substr(0, tag - at_), sign, kind == '{');
  move_to(tag);
  if (kind == '%' && read_raw(tag)) return;
  move_to(tag + (sign == '\0' ? 2 : 3));
  if (kind == '#') return read_comment();
  read_tag(kind == '{');
}

void Lexer::push_data(std::string_view data, char sign, bool is_output) {
  if (sign == '-') {
    data = stripped(data, Side::right);
  } else if (sign == '\0' && !is_output) {
    const size_t line = data.rfind('\n') + 1;  // npos + 1 is 0
    if ((line > 0 || begins_line_) && stripped(data.substr(line), Side::both).empty()) data = data.substr(0, line);
  }
  if (!data.empty()) push(Kind::data, std::string(data));
}

/// Returns the place of the end of the tag `{% word %}` that begins at `tag`, with its sign.
std::optional<size_t> Lexer::word_tag(size_t tag, std::string_view word) const {
  size_t position = tag + 2;
  if (is_sign(at(position))) ++position;
  position = after_space(position);
  if (!sees(word, position)) return std::nullopt;
  position = after_space(position + word.size());
  const bool is_end = sees("%}", position) || (is_sign(at(position)) && sees("%}", position + 1));
  return is_end ? std::optional(position) : std::nullopt;
}

bool Lexer::read_raw(size_t tag) {
  const auto begin = word_tag(tag, "raw");
  if (!begin || at(*begin) == '+') return false;
  const bool strips = at(*begin) == '-';
  const size_t content = strips ? after_space(*begin + 3) : *begin + 2;
  begins_line_ = at(content - 1) == '\n';
  move_to(content);
  for (size_t end = text_.find("{%", at_); end != std::string::npos; end = text_.find("{%", end + 1)) {
    const auto close = word_tag(end, "endraw");
    if (!close) continue;
    push_data(std::string_view(text_).substr(at_, end - at_), is_sign(at(end + 2)) ? at(end + 2) : '\0', false);
    const char sign = is_sign(at(*close)) ? at(*close) : '\0';
    move_behind_end(*close + (sign == '\0' ? 0 : 1), "%}", sign);
    return true;
  }
  fail("{% raw %} has no {% endraw %}");
}

void Lexer::read_comment() {
  const size_t end = text_.find("#}", at_);
  if (end == std::string::npos) fail("a comment has no end '#}'");
  const char before = end > at_ ? at(end - 1) : '\0';
  move_behind_end(end, "#}", is_sign(before) ? before : '\0');
}

void Lexer::read_tag(bool is_output) {
  push(is_output ? Kind::output_begin : Kind::block_begin, {});
  const int begin = line_;
  while (true) {
    move_to(after_space(at_));
    if (at_ >= text_.size()) throw SyntaxProblem{is_output ? "'{{' has no '}}'" : "'{%' has no '%}'", begin};
    if (open_.empty() && ends_tag(is_output)) return;
    read_token();
  }
}

bool Lexer::ends_tag(bool is_output) {
  const std::string_view close = is_output ? "}}" : "%}";
  const char sign = at(at_) == '-' || (at(at_) == '+' && !is_output) ? at(at_) : '\0';
  const size_t position = at_ + (sign == '\0' ? 0 : 1);
  if (!sees(close, position)) return false;
  push(is_output ? Kind::output_end : Kind::block_end, {});
  move_behind_end(position, close, sign);
  return true;
}

void Lexer::read_token() {
  if (read_number() || read_name()) return;
  if (at(at_) == '\'' || at(at_) == '"') return read_string();
  read_symbol();
}

bool Lexer::read_name() {
  size_t end = at_;
  while (end < text_.size()) {
    size_t next = end;
    const int32_t point = next_point(text_, next);
    if (point != '_' && !is_letter_or_digit(point)) break;
    end = next;
  }
  if (end == at_) return false;
  push(Kind::name, text_.substr(at_, end - at_));
  move_to(end);
  return true;
}

bool Lexer::read_number() {
  if (!is_decimal(at(at_))) return false;
  std::string digits;
  size_t position = at_;
  const auto take_digits = [&] {
    while (is_decimal(at(position)) || (at(position) == '_' && is_decimal(at(position + 1))))
      if (const char c = text_[position++]; c != '_') digits += c;
  };
  take_digits();
  bool is_real = false;
  const bool follows_dot = at_ > 0 && at(at_ - 1) == '.';
  if (!follows_dot && at(position) == '.' && is_decimal(at(position + 1))) {
    is_real = true;
    digits += text_[position++];
    take_digits();
  }
  const size_t exponent = position + (is_sign(at(position + 1)) ? 2 : 1);
  if (!follows_dot && (at(position) == 'e' || at(position) == 'E') && is_decimal(at(exponent))) {
    is_real = true;
    digits += text_.substr(position, exponent - position);
    position = exponent;
    take_digits();
  }
  if (!is_real && digits.size() > 1 && digits.find_first_not_of('0') != std::string::npos && digits[0] == '0')
    fail("a whole number must not begin with 0");
  push(is_real ? Kind::real : Kind::whole, digits);
  move_to(position);
  return true;
}

void Lexer::read_string() {
  const char quote = at(at_);
  const int begin = line_;
  std::string value;
  move_to(at_ + 1);
  while (at(at_) != quote) {
    if (at_ >= text_.size()) throw SyntaxProblem{"a string has no end", begin};
    if (at(at_) == '\\') {
      read_escape(value);
    } else {
      value += at(at_);
      move_to(at_ + 1);
    }
  }
  tokens_.push_back({Kind::string, std::move(value), begin});
  move_to(at_ + 1);
}

void Lexer::read_escape(std::string& value) {
  constexpr std::string_view kLetters = "ntr\\'\"abfv", kMeant = "\n\t\r\\'\"\a\b\f\v";
  const char letter = at(at_ + 1);
  const size_t known = kLetters.find(letter);
  size_t position = at_ + 2;
  if (letter != '\0' && known != std::string_view::npos) {
    value += kMeant[known];
  } else if (letter >= '0' && letter <= '7') {
    int32_t point = 0;
    for (--position; position < at_ + 4 && at(position) >= '0' && at(position) <= '7'; ++position)
      point = point * 8 + (at(position) - '0');
    append_point(value, point);
  } else if (letter == 'x' || letter == 'u' || letter == 'U') {
    int32_t point = 0;
    for (const size_t end = position + (letter == 'x' ? 2 : letter == 'u' ? 4 : 8); position < end; ++position) {
      const int digit = hex_value(at(position));
      if (digit < 0 || point > 0xFFFFFF) fail("an escape in a string is not valid");
      point = point * 16 + digit;
    }
    if (point > 0x10FFFF || (point >= 0xD800 && point <= 0xDFFF)) fail("an escape in a string is no character");
    append_point(value, point);
  } else if (letter == 'N') {
    fail("names of characters in strings are not supported; write the character");
  } else if (letter != '\n') {  // any other backslash stands for itself
    value += '\\';
    position = at_ + 1;
  }
  move_to(std::min(position, text_.size()));
}

void Lexer::read_symbol() {
  constexpr std::string_view kOpening = "([{", kClosing = ")]}";
  for (const std::string_view symbol : {"//", "**", "==", "!=", ">=", "<="})
    if (sees(symbol, at_)) {
      push(Kind::symbol, std::string(symbol));
      return move_to(at_ + 2);
    }
  const char c = at(at_);
  if (std::string_view("+-/*%~[](){}<>=.:|,;").find(c) == std::string_view::npos || c == '\0') {
    size_t next = at_;
    next_point(text_, next);
    fail("unexpected character '" + text_.substr(at_, next - at_) + "'");
  }
  if (const size_t kind = kOpening.find(c); kind != std::string_view::npos) open_ += kClosing[kind];
  if (kClosing.find(c) != std::string_view::npos) {
    if (open_.empty()) fail(std::string("unexpected '") + c + "'");
    if (open_.back() != c) fail(std::string("unexpected '") + c + "', expected '" + open_.back() + "'");
    open_.pop_back();
  }
  push(Kind::symbol, std::string(1, c));
  move_to(at_ + 1);
}

}  // namespace

std::vector<Token> tokens_of(std::string_view source) { return Lexer(source).run(); }

}  // namespace gputrain::chat
