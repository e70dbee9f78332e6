// Byte-level BPE in which the rank of a token is also that of its merge: OpenAI's tiktoken, Mistral's tekken.
#include <array>
#include <charconv>

#include "../../utf8.hpp"
#include "../subwords/read_bpe.hpp"
#include "../subwords/workspace.hpp"
#include "../text/splitting.hpp"
#include "../text/unicode.hpp"
#include "gputrain/core/base64.hpp"
#include "gputrain/core/error.hpp"
#include "readers.hpp"

namespace gputrain::tokenizers {
namespace {

struct Special {
  int64_t token;
  std::string_view text;
};

/// The facts about a tokenizer that are not in its file of ranks.
struct Family {
  size_t ranks;  // number of ranks, by which the family is recognized
  std::string_view pattern;
  std::array<Special, 10> specials;
  int64_t extras = 0;  // how many special tokens "<|extra_0|>" and so on follow
};

#define LLAMA3_WITH_DIGITS(digits)                                   \
  R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|)" digits \
  R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"
constexpr std::string_view kLlama3 = LLAMA3_WITH_DIGITS(R"(\p{N}{1,3})");
constexpr std::string_view kQwen = LLAMA3_WITH_DIGITS(R"(\p{N})");
#undef LLAMA3_WITH_DIGITS
constexpr std::string_view kGpt2 = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr std::string_view kO200k =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

constexpr std::array<Family, 5> kFamilies{{
    {50256, kGpt2, {{{50256, "<|endoftext|>"}}}},
    {100256,
     kLlama3,
     {{{100257, "<|endoftext|>"},
       {100258, "<|fim_prefix|>"},
       {100259, "<|fim_middle|>"},
       {100260, "<|fim_suffix|>"},
       {100276, "<|endofprompt|>"}}}},
    {128000,
     kLlama3,
     {{{128000, "<|begin_of_text|>"},
       {128001, "<|end_of_text|>"},
       {128002, "<|reserved_special_token_0|>"},
       {128003, "<|reserved_special_token_1|>"},
       {128004, "<|finetune_right_pad_id|>"},
       {128006, "<|start_header_id|>"},
       {128007, "<|end_header_id|>"},
       {128008, "<|eom_id|>"},
       {128009, "<|eot_id|>"},
       {128010, "<|python_tag|>"}}}},  // tokens behind these have other names in other programs
    {151643, kQwen, {{{151643, "<|endoftext|>"}, {151644, "<|im_start|>"}, {151645, "<|im_end|>"}}}, 205},
    {199998, kO200k, {{{199999, "<|endoftext|>"}, {200018, "<|endofprompt|>"}}}},
}};

/// `first`: the number of rank 0.
PublishedTokenizer::Parts parts_of(const Vocabulary& ranks, int64_t first, std::string_view pattern) {
  Vocabulary vocabulary(ranks.where());
  std::vector<uint32_t> by_token(static_cast<size_t>(first + ranks.size()), PairTable::kNone);
  for (int64_t rank = 0; rank < ranks.size(); ++rank) {
    if (ranks.text(rank) == nullptr) continue;
    vocabulary.add(*ranks.text(rank), first + rank);
    by_token[static_cast<size_t>(first + rank)] = static_cast<uint32_t>(rank);
  }
  PairTable pairs = pairs_of(vocabulary, by_token);
  PublishedTokenizer::Parts parts{
      .model = std::make_unique<Bpe>(std::move(vocabulary), std::move(pairs),
                                     BpeOptions{.prefers_whole_words = true, .is_byte_level = true})};
  parts.pre_tokenizers.steps = {split(matches_of(std::make_shared<Regex>(pattern, RegexDialect::rust, ranks.where())),
                                      DelimiterBehavior::isolated)};
  parts.pre_tokenizers.ends_with_alphabet = true;
  parts.decoder = byte_level_decoder();
  return parts;
}

AddedToken special(std::string_view text, int64_t token) {
  return {.text = std::string(text), .token = static_cast<int32_t>(token), .is_special = true};
}

std::vector<AddedToken> specials_of(const Family& family) {
  std::vector<AddedToken> tokens;
  for (const Special& token : family.specials)
    if (!token.text.empty()) tokens.push_back(special(token.text, token.token));
  const int64_t first = int64_t{tokens.back().token} + 1;
  for (int64_t i = 0; i < family.extras; ++i)
    tokens.push_back(special("<|extra_" + std::to_string(i) + "|>", first + i));
  return tokens;
}

}  // namespace

PublishedTokenizer::Parts read_tiktoken(std::string_view text, const std::string& file) {
  Vocabulary ranks(file);
  int64_t line = 0;
  for (size_t begin = 0; begin < text.size();) {
    ++line;
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view entry = text.substr(begin, end - begin);
    begin = end + 1;
    if (entry.empty()) continue;
    const size_t space = entry.find(' ');
    const auto bytes = from_base64(entry.substr(0, space));
    int64_t rank = -1;
    if (space != std::string_view::npos) std::from_chars(entry.data() + space + 1, entry.data() + entry.size(), rank);
    if (!bytes || rank < 0)
      throw Error(ExitCode::data,
                  {.what = "expected a token in Base64 and its rank", .where = file + ":" + std::to_string(line)});
    ranks.add(in_alphabet(*bytes, nullptr).text, rank);
  }
  for (const Family& family : kFamilies) {
    if (family.ranks != ranks.count()) continue;
    PublishedTokenizer::Parts parts = parts_of(ranks, 0, family.pattern);
    parts.added = specials_of(family);
    if (family.pattern != kQwen) return parts;
    parts.normalizer = normal_form(NormalForm::nfc);
    for (AddedToken& token : parts.added) token.is_normalized = true;
    return parts;
  }
  throw Error(ExitCode::data, {.what = "a file of " + std::to_string(ranks.count()) +
                                       " ranks does not say how text is cut, and is of no model known here",
                               .where = file,
                               .hint = "put the tokenizer.json of the model there"});
}

PublishedTokenizer::Parts read_tekken(const JsonPart& root) {
  const JsonPart config = root.at("config");
  const int64_t first = config.at("default_num_special_tokens").whole_number();
  const int64_t size = config.at("default_vocab_size").whole_number();
  if (first < 0 || first >= kMostTokens || size < first) config.refuse("not the numbers of tokens");
  const int64_t most = size - first;
  Vocabulary ranks(root.file());
  for (const JsonPart& entry : root.at("vocab").list()) {
    const int64_t rank = entry.at("rank").whole_number();
    const auto bytes = from_base64(entry.at("token_bytes").text());
    if (!bytes) entry.refuse("'token_bytes' is not Base64");
    if (rank < most) ranks.add(in_alphabet(*bytes, nullptr).text, rank);
  }
  PublishedTokenizer::Parts parts = parts_of(ranks, first, config.at("pattern").text());
  if (!root.has("special_tokens")) return parts;
  for (const JsonPart& entry : root.at("special_tokens").list()) {
    const int64_t token = entry.at("rank").whole_number();
    if (token < 0 || token >= first) entry.refuse("special tokens have numbers below " + std::to_string(first));
    parts.added.push_back(special(entry.at("token_str").text(), token));
  }
  return parts;
}

}  // namespace gputrain::tokenizers
