#include "gputrain/core/secrets.hpp"

#include <algorithm>
#include <array>
#include <functional>
#include <vector>

#include "gputrain/core/lower_case.hpp"
#include "gputrain/core/printable.hpp"

namespace gputrain {
namespace {

/// A stretch of a text, in bytes.
struct Range {
  size_t begin = 0, end = 0;
};
using Ranges = std::vector<Range>;

bool is_upper(char c) { return (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter_or_digit(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || is_digit(c); }

bool is_secret_word(std::string_view word) {
  const auto is_word = [&](std::string_view one) { return word == one; };
  const auto contains = [&](std::string_view part) { return word.find(part) != std::string_view::npos; };
  constexpr std::array<std::string_view, 11> kWords{"auth",  "oauth",     "authorization", "pat", "dsn",   "cred",
                                                    "creds", "signature", "sig",           "jwt", "cookie"};
  constexpr std::array<std::string_view, 7> kParts{"secret", "passw",   "passphrase", "credential",
                                                   "key",    "webhook", "bearer"};
  constexpr std::array<std::string_view, 7> kOtherKeys{"keyb",   "keyword", "keypoint", "keyframe",
                                                       "monkey", "turkey",  "hotkey"};
  if (std::ranges::any_of(kOtherKeys, contains)) return false;
  return std::ranges::any_of(kWords, is_word) || std::ranges::any_of(kParts, contains) || word.ends_with("pass") ||
         word.ends_with("pwd") || (contains("token") && !contains("tokeniz"));
}

/// Returns whether a word says that tokens are those of texts, which are counted or special: MAX_TOKENS, EOS_TOKEN.
bool is_of_texts(std::string_view word) {
  constexpr std::array<std::string_view, 25> kWords{
      "max",   "min",   "num", "n",      "number", "count", "total", "per", "mean", "avg", "limit", "budget", "batch",
      "block", "train", "val", "prompt", "bos",    "eos",   "pad",   "unk", "mask", "sep", "cls",   "stop"};
  return std::ranges::find(kWords, word) != kWords.end();
}

size_t find_any(std::string_view text, std::string_view characters, size_t from, size_t end) {
  return std::min(text.find_first_of(characters, from), end);
}

/// Secrets in what follows the '?' or '#' of a URL.
void add_parameters(std::string_view text, size_t begin, size_t end, Ranges& found) {
  while (begin < end) {
    const size_t next = find_any(text, "&;#,)]}", begin + 1, end);
    const size_t equals = text.find('=', begin);
    if (equals < next && is_secret_name(text.substr(begin, equals - begin))) found.push_back({equals + 1, next});
    begin = next;
  }
}

Ranges url_secrets(std::string_view text) {
  Ranges found;
  for (size_t at = 0; (at = text.find("://", at)) != std::string_view::npos;) {
    const bool is_web = text.substr(0, at).ends_with("http") || text.substr(0, at).ends_with("https");
    at += 3;
    const size_t end = find_any(text, std::string_view(" \t\n\"'`<>\0", 9), at, text.size());
    const size_t host_end = find_any(text, "/?#", at, end), user_end = text.substr(0, host_end).rfind('@');
    if (user_end != std::string_view::npos && user_end >= at) {
      const size_t colon = text.find(':', at);
      // In `https://x@host`, x is a token; in `ssh://git@host`, git is a name.
      if (colon < user_end || is_web) found.push_back({colon < user_end ? colon + 1 : at, user_end});
    }
    add_parameters(text, find_any(text, "?#", host_end, end), end, found);
    at = end;
  }
  return found;
}

/// Returns the value at `at`: in quotes up to the closing one; else to the end of the line or argument, or inside
/// braces of the entry.
Range value_at(std::string_view text, size_t at) {
  if (at < text.size() && (text[at] == '"' || text[at] == '\''))
    return {at + 1, std::min(text.find(text[at], at + 1), text.size())};
  const bool is_in_braces = text.substr(0, at).find('{') != std::string_view::npos;
  const std::string_view ends = is_in_braces ? std::string_view("\n\0,}", 4) : std::string_view("\n\0", 2);
  return {at, find_any(text, ends, at, text.size())};
}

/// Values after names such as HF_TOKEN. Names in lower case are no variables: `max_tokens: 2Btok`.
Ranges named_secrets(std::string_view text) {
  Ranges found;
  for (size_t at = 0; at < text.size();) {
    if (!is_letter_or_digit(text[at]) && text[at] != '_') {
      ++at;
      continue;
    }
    const size_t begin = at;
    while (at < text.size() && (is_letter_or_digit(text[at]) || text[at] == '_')) ++at;
    const std::string_view name = text.substr(begin, at - begin);
    const bool is_variable = std::ranges::all_of(name, [](char c) { return is_upper(c) || is_digit(c); });
    if (!is_variable || !is_secret_name(name)) continue;
    if (at < text.size() && (text[at] == '"' || text[at] == '\'')) ++at;
    at = std::min(text.find_first_not_of(' ', at), text.size());
    if (at == text.size() || (text[at] != ':' && text[at] != '=')) continue;
    const Range value = value_at(text, std::min(text.find_first_not_of(' ', at + 1), text.size()));
    const std::string_view rest = text.substr(value.begin);
    if (!rest.starts_with("${") && !rest.starts_with("***")) found.push_back(value);
    at = value.end;
  }
  return found;
}

using Stand = std::function<std::string(std::string_view secret)>;

std::string with_stand_ins(std::string_view text, const Ranges& secrets, const Stand& stand_in) {
  std::string safe;
  size_t done = 0;
  for (const Range& secret : secrets) {
    const std::string_view value = text.substr(secret.begin, secret.end - secret.begin);
    const bool is_hidden = value.find_first_not_of('*') == std::string_view::npos;
    safe += text.substr(done, secret.begin - done);
    safe += is_hidden ? std::string(value) : stand_in(value);
    done = secret.end;
  }
  return safe.append(text.substr(done));
}

std::string stars(std::string_view secret) {
  std::string stars;
  for (size_t at = 0; at < secret.size(); at += std::max<size_t>(1, character_length(secret, at))) stars += '*';
  return stars;
}

}  // namespace

bool is_secret_name(std::string_view name) {
  const std::string lower = lower_case(name);
  if (lower == "pwd" || lower == "oldpwd") return false;  // the current folder
  std::vector<std::string_view> words;
  for (size_t begin = 0; begin < lower.size();) {
    size_t end = begin;
    while (end < lower.size() && is_letter_or_digit(lower[end])) ++end;
    words.push_back(std::string_view(lower).substr(begin, end - begin));
    begin = end + 1;
  }
  const bool counts_tokens = std::ranges::any_of(words, is_of_texts);
  return std::ranges::any_of(words, [&](std::string_view word) {
    return is_secret_word(word) && !(counts_tokens && (word == "token" || word == "tokens"));
  });
}

std::string without_url_secrets(std::string_view text) {
  return with_stand_ins(text, url_secrets(text), [](std::string_view) { return "***"; });
}

std::string with_starred_secrets(std::string_view line) {
  const std::string safe = with_stand_ins(line, url_secrets(line), stars);
  return with_stand_ins(safe, named_secrets(safe), stars);
}

}  // namespace gputrain
