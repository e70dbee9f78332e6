// Older files than tokenizer.json: they are read as the tokenizer.json that the same model has today.
#include <filesystem>

#include "gputrain/core/error.hpp"
#include "readers.hpp"
#include "tokenizer_json.hpp"

namespace gputrain::tokenizers {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

/// Returns tokenizer_config.json of the folder, or an empty object.
json config_of(const fs::path& folder) {
  const fs::path file = folder / "tokenizer_config.json";
  return fs::exists(file) ? read_json(file.string()) : json::object();
}

std::vector<std::string> lines_of(const fs::path& file) {
  const std::string text = read_file(file.string());
  std::vector<std::string> lines;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    lines.push_back(text.substr(begin, end - begin));
    if (lines.back().ends_with('\r')) lines.back().pop_back();
    begin = end + 1;
  }
  return lines;
}

/// Returns those of the texts that are in the vocabulary, as special tokens.
json special_tokens(const json& vocabulary, std::initializer_list<const char*> texts) {
  json tokens = json::array();
  for (const char* text : texts)
    if (vocabulary.contains(text))
      tokens.push_back({{"content", text}, {"id", vocabulary[text]}, {"special", true}, {"normalized", false}});
  return tokens;
}

}  // namespace

json json_of_vocabulary_and_merges(const std::string& folder) {
  const json config = config_of(folder);
  const std::string type = JsonPart(config, folder + "/tokenizer_config.json").text("tokenizer_class", "GPT2Tokenizer");
  const bool is_roberta = type.starts_with("Roberta");
  if (!is_roberta && !type.starts_with("GPT2"))
    throw Error(ExitCode::data, {.what = "vocab.json and merges.txt do not say how a " + type + " cuts text",
                                 .where = folder,
                                 .hint = "put the tokenizer.json of the model there"});
  const json vocabulary = read_json(folder + "/vocab.json");
  json merges = json::array();
  for (const std::string& line : lines_of(fs::path(folder) / "merges.txt"))
    if (!line.empty() && !line.starts_with("#version")) merges.push_back(line);
  json document = {
      {"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", std::move(merges)}}},
      {"pre_tokenizer",
       {{"type", "ByteLevel"}, {"add_prefix_space", config.value("add_prefix_space", false)}, {"use_regex", true}}},
      {"decoder", {{"type", "ByteLevel"}}},
      {"added_tokens", special_tokens(vocabulary, {"<|endoftext|>", "<s>", "</s>", "<pad>", "<unk>", "<mask>"})}};
  for (json& token : document["added_tokens"]) token["lstrip"] = token["content"] == "<mask>";
  if (is_roberta && vocabulary.contains("<s>") && vocabulary.contains("</s>"))
    document["post_processor"] = {
        {"type", "RobertaProcessing"}, {"cls", {"<s>", vocabulary["<s>"]}}, {"sep", {"</s>", vocabulary["</s>"]}}};
  return document;
}

PublishedTokenizer::Parts read_vocabulary_and_merges(const std::string& folder) {
  const json document = json_of_vocabulary_and_merges(folder);
  return read_tokenizer_json({document, folder + "/vocab.json"});
}

PublishedTokenizer::Parts read_bert_vocabulary(const std::string& file) {
  const fs::path folder = fs::path(file).parent_path();
  const json config = config_of(folder);
  const JsonPart options(config, (folder / "tokenizer_config.json").string());
  json vocabulary = json::object();
  int64_t next = 0;
  for (const std::string& line : lines_of(file)) {
    if (vocabulary.contains(line))
      throw Error(ExitCode::data, {.what = "the token '" + shortened(line) + "' is there twice",
                                   .where = file + ":" + std::to_string(next + 1)});
    vocabulary[line] = next++;
  }
  json document = {{"model", {{"type", "WordPiece"}, {"vocab", vocabulary}}},
                   {"normalizer",
                    {{"type", "BertNormalizer"},
                     {"lowercase", options.flag("do_lower_case", true)},
                     {"handle_chinese_chars", options.flag("tokenize_chinese_chars", true)},
                     {"strip_accents", config.value("strip_accents", json())}}},
                   {"pre_tokenizer", {{"type", "BertPreTokenizer"}}},
                   {"decoder", {{"type", "WordPiece"}}},
                   {"added_tokens", special_tokens(vocabulary, {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"})}};
  if (vocabulary.contains("[CLS]") && vocabulary.contains("[SEP]"))
    document["post_processor"] = {
        {"type", "BertProcessing"}, {"cls", {"[CLS]", vocabulary["[CLS]"]}}, {"sep", {"[SEP]", vocabulary["[SEP]"]}}};
  return read_tokenizer_json({document, file});
}

}  // namespace gputrain::tokenizers
