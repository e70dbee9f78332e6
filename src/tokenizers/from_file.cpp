#include <nlohmann/json.hpp>

#include "gputrain/core/error.hpp"
#include "gputrain/core/json.hpp"
#include "gputrain/hub/cache.hpp"
#include "gputrain/tokenizers/published.hpp"

namespace gputrain::tokenizers {
namespace {

namespace fs = std::filesystem;

/// A published tokenizer as an entry of the catalog.
class FromFile : public Tokenizer {
 public:
  explicit FromFile(const fs::path& path)
      : folder_(fs::is_directory(path) ? path : fs::absolute(path).parent_path()), published_(read_published(path)) {
    if (!fs::is_directory(path)) source_ = path;
  }

  int64_t vocabulary_size() const override { return published_->vocabulary_size(); }
  void tokenize(std::string_view text, const std::string& name, const Take& take,
                std::vector<ByteRange>* ranges) const override {
    published_->tokenize(text, name, take, ranges);
  }
  Frame frame(bool has_two_texts) const override { return published_->frame(has_two_texts); }
  std::optional<int64_t> end_token() const override { return published_->end_token(); }
  std::optional<int64_t> mask_token() const override { return published_->mask_token(); }
  bool is_special(int64_t token) const override { return published_->is_special(token); }
  fs::path folder() const override { return folder_; }
  fs::path source() const override { return source_; }
  std::string decode(std::span<const int64_t> tokens) const override { return published_->decode(tokens); }
  void save(std::map<std::string, std::string>&) const override {}  // its files say it, and are copied

 private:
  fs::path folder_, source_;
  std::shared_ptr<const PublishedTokenizer> published_;
};

struct PublishedOptions {
  std::string tokenizer_path;

  static void describe(config::Description<PublishedOptions>& d) {
    d.key("tokenizer_path", &PublishedOptions::tokenizer_path,
          "tokenizer.json, a SentencePiece model or tiktoken's ranks, or the folder of a model that has one of them, "
          "vocab.json with merges.txt, or vocab.txt")
        .required()
        .path();
  }
};

struct Published final : FromFile {
  Published(const PublishedOptions& options, const TokenizerRequest&)
      : FromFile(hub::pretrained_path(options.tokenizer_path)) {}
};

struct PretrainedOptions {
  static void describe(config::Description<PretrainedOptions>& d) { d.summary("no options"); }
};

fs::path pretrained_folder(const TokenizerRequest& request) {
  if (request.pretrained.empty())
    throw Error(ExitCode::usage, {.what = "the job has no model.pretrained, whose tokenizer could be taken",
                                  .where = "data.text.tokenizer: pretrained",
                                  .hint = "tokenizer: published with tokenizer_path, bytes, or characters"});
  const fs::path path = request.pretrained;
  return fs::is_directory(path) ? path : path.parent_path();
}

struct Pretrained final : FromFile {
  Pretrained(const PretrainedOptions&, const TokenizerRequest& request) : FromFile(pretrained_folder(request)) {}
};

const config::Registered<Published, PublishedOptions> registered_published{
    catalog(), "published", "that of a published model, read from its files"};
const config::Registered<Pretrained, PretrainedOptions> registered_pretrained{catalog(), "pretrained",
                                                                              "that of model.pretrained"};

/// Returns the text of a token in these files, which is a string or an object with `content`; empty: there is none.
std::string spelling_in(const fs::path& path, const char* key) {
  const auto config = parse_json_file(path);
  if (!config.is_object() || !config.contains(key)) return {};
  const auto& token = config[key];
  if (token.is_string()) return token.get<std::string>();
  return token.is_object() && token.contains("content") && token["content"].is_string()
             ? token["content"].get<std::string>()
             : "";
}

std::string token_beside(const fs::path& folder_or_file, const char* key) {
  const fs::path folder = fs::is_directory(folder_or_file) ? folder_or_file : folder_or_file.parent_path();
  const std::string spelling = spelling_in(folder / "tokenizer_config.json", key);
  return spelling.empty() ? spelling_in(folder / "special_tokens_map.json", key) : spelling;
}

}  // namespace

fs::path published_path(const config::Choice& choice, const fs::path& pretrained) {
  if (choice.name == "pretrained") return pretrained;
  return choice.name == "published" ? hub::pretrained_path(choice.as<PublishedOptions>().tokenizer_path) : fs::path();
}

std::string end_token_beside(const fs::path& folder_or_file) { return token_beside(folder_or_file, "eos_token"); }
std::string begin_token_beside(const fs::path& folder_or_file) { return token_beside(folder_or_file, "bos_token"); }
std::string padding_token_beside(const fs::path& folder_or_file) { return token_beside(folder_or_file, "pad_token"); }

}  // namespace gputrain::tokenizers
