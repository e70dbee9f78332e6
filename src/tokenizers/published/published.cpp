#include "gputrain/tokenizers/published.hpp"

#include <algorithm>
#include <fstream>

#include "gputrain/core/error.hpp"
#include "readers.hpp"
#include "tokenizer_json.hpp"

namespace gputrain::tokenizers {
namespace {

namespace fs = std::filesystem;

/// The best source in a folder of a model: tokenizer.json says everything, the others leave something out.
fs::path source_in(const fs::path& folder) {
  for (const char* name : {"tokenizer.json", "tekken.json", "vocab.json", "vocab.txt", "tokenizer.model"})
    if (fs::exists(folder / name) && (name != std::string_view("vocab.json") || fs::exists(folder / "merges.txt")))
      return folder / name;
  std::vector<fs::path> others;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string extension = entry.path().extension();
    if (extension == ".model" || extension == ".tiktoken") others.push_back(entry.path());
  }
  if (others.size() == 1) return others.front();
  throw Error(ExitCode::data,
              {.what = "no tokenizer here, or several",
               .where = folder.string(),
               .hint = "tokenizer.json is looked for, then tekken.json, vocab.json with merges.txt, vocab.txt, "
                       "tokenizer.model, and *.tiktoken; name the file"});
}

PublishedTokenizer::Parts read_json_file(const std::string& file) {
  const nlohmann::json document = read_json(file);
  const JsonPart root(document, file);
  return root.has("config") && root.has("vocab") ? read_tekken(root) : read_tokenizer_json(root);
}

PublishedTokenizer::Parts read_source(const fs::path& source) {
  const std::string file = source.string();
  if (source.filename() == "vocab.json" || source.filename() == "merges.txt")
    return read_vocabulary_and_merges(source.parent_path().string());
  if (source.extension() == ".json") return read_json_file(file);
  if (source.extension() == ".txt") return read_bert_vocabulary(file);
  const std::string content = read_file(file);
  // A SentencePiece model begins with a field of bytes, a table of ranks with a digit of Base64.
  return content.starts_with('\n') ? read_sentence_piece(content, file) : read_tiktoken(content, file);
}

}  // namespace

std::shared_ptr<const PublishedTokenizer> read_published(const fs::path& folder_or_file) {
  return std::make_shared<PublishedTokenizer>(
      read_source(fs::is_directory(folder_or_file) ? source_in(folder_or_file) : folder_or_file));
}

std::string end_token_beside(const fs::path& folder_or_file) {
  const fs::path folder = fs::is_directory(folder_or_file) ? folder_or_file : folder_or_file.parent_path();
  std::ifstream file(folder / "tokenizer_config.json");
  const auto config = nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
  const auto found = config.is_object() ? config.find("eos_token") : config.end();
  if (found == config.end()) return {};
  const auto& spelling = found->is_object() ? found->value("content", nlohmann::json()) : *found;
  return spelling.is_string() ? spelling.get<std::string>() : "";
}

}  // namespace gputrain::tokenizers
