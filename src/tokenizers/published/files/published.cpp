#include "gputrain/tokenizers/published.hpp"

#include <algorithm>
#include <utility>

#include "gputrain/core/error.hpp"
#include "gputrain/hub/cache.hpp"
#include "readers.hpp"
#include "tokenizer_json.hpp"

namespace gputrain::tokenizers {
namespace {

namespace fs = std::filesystem;

/// Returns the best source in a folder of a model: tokenizer.json says everything, the others leave something out.
/// Empty: there is none, or several.
fs::path find_source(const fs::path& folder) {
  for (const char* name : {"tokenizer.json", "tekken.json", "vocab.json", "vocab.txt", "tokenizer.model"})
    if (fs::exists(folder / name) && (name != std::string_view("vocab.json") || fs::exists(folder / "merges.txt")))
      return folder / name;
  std::vector<fs::path> others;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string extension = entry.path().extension();
    if (extension == ".model" || extension == ".tiktoken") others.push_back(entry.path());
  }
  return others.size() == 1 ? others.front() : fs::path();
}

fs::path source_in(const fs::path& folder) {
  if (fs::path found = find_source(folder); !found.empty()) return found;
  const std::string fetch = hub::fetch_command_for(folder);
  throw Error(ExitCode::data,
              {.what = "no tokenizer here, or several",
               .where = folder.string(),
               .hint = (fetch.empty()
                            ? "fetch the model's files, without weights if need be: gputrain fetch NAME --no-weights; "
                            : "if not all of the model is here, " + fetch + "; ") +
                       "tokenizer.json is looked for, then tekken.json, vocab.json with merges.txt, vocab.txt, "
                       "tokenizer.model, and *.tiktoken; name the file"});
}

/// Returns whether this is a SentencePiece model: it begins with a field of bytes, a table of ranks with a digit of
/// Base64.
bool is_sentence_piece(const std::string& content) { return content.starts_with('\n'); }

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
  return is_sentence_piece(content) ? read_sentence_piece(content, file) : read_tiktoken(content, file);
}

}  // namespace

bool is_published(const fs::path& folder) { return !find_source(folder).empty(); }

nlohmann::json tokenizer_json_of(const fs::path& folder) {
  const fs::path source = find_source(folder);
  if (source.filename() == "tokenizer.json") return read_json(source.string());
  return source.filename() == "vocab.json" ? json_of_vocabulary_and_merges(folder.string()) : nlohmann::json();
}

std::optional<SentencePieces> sentence_pieces_of(const fs::path& folder) {
  const fs::path source = find_source(folder);
  if (source.extension() != ".model") return std::nullopt;
  const std::string content = read_file(source.string());
  if (!is_sentence_piece(content)) return std::nullopt;
  return read_sentence_pieces(content, source.string());
}

std::shared_ptr<const PublishedTokenizer> read_published(const fs::path& folder_or_file) {
  PublishedTokenizer::Parts parts =
      read_source(fs::is_directory(folder_or_file) ? source_in(folder_or_file) : folder_or_file);
  parts.end_token = end_token_beside(folder_or_file);
  return std::make_shared<PublishedTokenizer>(std::move(parts));
}

}  // namespace gputrain::tokenizers
