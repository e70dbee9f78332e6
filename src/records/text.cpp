// Plain text, gzip or Zstandard: one file or all files of a folder.
#include <algorithm>
#include <filesystem>
#include <iterator>
#include <span>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

#include "formats/record_file.hpp"
#include "gputrain/core/activity.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/core/file_kind.hpp"
#include "gputrain/core/log.hpp"
#include "gputrain/core/numbers.hpp"
#include "gputrain/data/content_hash.hpp"
#include "gputrain/data/options.hpp"
#include "gputrain/datasets/file_list.hpp"
#include "gputrain/datasets/text_file.hpp"
#include "gputrain/datasets/token_windows.hpp"
#include "samples/text_samples.hpp"
#include "tokens/encoded_texts.hpp"

namespace gputrain::records {
namespace {

struct TextSpec {
  std::vector<std::string> include, exclude;

  static void describe(config::Description<TextSpec>& d) {
    d.summary("plain text, .gz or .zst: one file, or the files of a folder, concatenated in order of their names");
    d.key("include", &TextSpec::include, "patterns of files to take: '*.cpp', 'src/**/*.hpp'; empty: all");
    d.key("exclude", &TextSpec::exclude, "patterns of files to leave out; 'build/' matches folders at any depth");
  }
};

struct TextFile {
  std::string path, text;
};

/// Refuses a name without wildcards that matches nothing; a pattern may.
void check_names(const TextSpec& spec, const std::vector<std::string>& files, const std::string& folder) {
  for (const std::string& name : spec.include) {
    if (name.find_first_of("*?[") != std::string::npos || name.ends_with('/')) continue;
    if (std::ranges::any_of(files, [&](const std::string& file) { return datasets::matches_glob(name, file); }))
      continue;
    throw Error(ExitCode::data, {.what = "no file is taken by '" + name + "' of `include`",
                                 .where = folder,
                                 .hint = "correct the name, or see whether `exclude` leaves it out"});
  }
}

std::vector<std::string> text_paths(const TextSpec& spec, const data::DatasetRequest& request) {
  namespace fs = std::filesystem;
  const std::string& path = request.path;
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) return datasets::expand_pattern(path);
  std::vector<std::string> files = datasets::list_folder(path, {spec.include, spec.exclude}, request.own_folders).files;
  if (files.empty())
    throw Error(ExitCode::data, {.what = "no file in this folder matches `include` and `exclude`", .where = path});
  check_names(spec, files, path);
  for (std::string& file : files) file = (fs::path(path) / file).string();
  return files;
}

std::vector<std::string> read_texts(const std::vector<std::string>& paths) {
  std::vector<std::string> texts;
  int64_t left = datasets::kMostTextBytes;
  for (const std::string& path : paths) {
    texts.push_back(datasets::read_text(path, left));
    left -= std::ssize(texts.back());
  }
  return texts;
}

/// Returns the reason why it is probably not text; empty: it may be. Images, archives and UTF-16 have NUL bytes.
std::string doubt_about(const std::string& text, const std::string& path) {
  const FileKind kind = file_kind(text);
  if (kind.type == FileType::lfs_pointer)
    throw Error(ExitCode::data, {.what = std::string(kind.name),
                                 .where = path,
                                 .hint = std::string(kind.remedy) + ", or leave it out with `exclude`"});
  const bool is_unexpected_page =
      kind.type == FileType::web_page && !path.ends_with(".html") && !path.ends_with(".htm");
  if ((kind.type != FileType::unknown && !kind.is_text()) || is_unexpected_page) return "is " + std::string(kind.name);
  return text.find('\0') == std::string::npos ? "" : "has NUL bytes";
}

/// Warns, because with `tokenizer: bytes` training would not notice.
void warn_of_binary(const std::vector<std::string>& paths, const std::vector<std::string>& texts) {
  int64_t count = 0;
  std::string first;
  for (size_t i = 0; i < paths.size(); ++i) {
    const std::string doubt = doubt_about(texts[i], paths[i]);
    if (!doubt.empty() && count++ == 0) first = paths[i] + " " + doubt;
  }
  if (count == 0) return;
  log::warning(counted(count, "file") + (count == 1 ? " is" : " are") + " probably not text: " + first +
               (count == 1 ? "" : ", for example") + ". Use `include` or `exclude` to choose the files");
}

/// Returns the format of records that a file has; null: none.
const RecordFormat* records_in(const std::string& path, const std::string& text) {
  if (is_json_records(text, /*is_whole=*/true)) return &format_named("jsonl");
  const RecordFormat* named = format_of_file(path);
  return named != nullptr && (named->name == "csv" || named->name == "tsv") ? named : nullptr;
}

/// Warns of records, whose braces and commas would be learned as text; a few among other files are usual.
void warn_of_records(const std::vector<std::string>& paths, const std::vector<std::string>& texts) {
  int64_t count = 0;
  std::string first;
  for (size_t i = 0; i < paths.size(); ++i) {
    const RecordFormat* format = records_in(paths[i], texts[i]);
    if (format != nullptr && count++ == 0)
      first = paths[i] + " has records, and is learned as text with all that is around them; format: " + format->name +
              " learns what they say";
  }
  if (count * 2 > std::ssize(paths)) log::warning(first);
}

class TextSource final : public datasets::TokenSource {
 public:
  TextSource(const TextSpec& spec, const data::DatasetRequest& request) : path_(request.path) {
    const std::vector<std::string> paths = text_paths(spec, request);
    request.tell_files(paths);
    const std::vector<std::string> texts = read_texts(paths);
    warn_of_binary(paths, texts);
    warn_of_records(paths, texts);
    content_hash_ = data::content_hash(std::ssize(texts), [&](int64_t index) {
      return data::content_of(std::as_bytes(std::span(texts[static_cast<size_t>(index)])));
    });
    tokenizer_ = tokenizer_for(request, texts, paths);
    if (tokenizer_->vocabulary_size() > UINT16_MAX + 1) {
      tokens_ = std::vector<int32_t>();
    } else if (tokenizer_->vocabulary_size() > UINT8_MAX + 1) {
      tokens_ = std::vector<uint16_t>();
    }
    std::visit(
        [&](auto& tokens) {
          using Token = typename std::decay_t<decltype(tokens)>::value_type;
          const auto take = [&](std::span<const int64_t> more) {
            std::ranges::transform(more, std::back_inserter(tokens), [](int64_t t) { return static_cast<Token>(t); });
          };
          Activity activity("data", "tokenising " + path_, paths.size() > 1 ? std::ssize(paths) : 0);
          for (size_t i = 0; i < paths.size(); ++i) {
            tokenizer_->encode(texts[i], paths[i], take);
            activity.add();
            ends_.push_back(std::ssize(tokens));
          }
          tokens.shrink_to_fit();
        },
        tokens_);
  }

  int64_t size() const override {
    return std::visit([](const auto& tokens) { return std::ssize(tokens); }, tokens_);
  }
  int64_t vocabulary_size() const override { return tokenizer_->vocabulary_size(); }
  std::string name() const override { return path_; }
  std::string describe(int64_t begin, int64_t end) const override { return datasets::files_between(ends_, begin, end); }

  uint64_t content_hash() const override { return content_hash_; }

  void read(int64_t first, std::span<int64_t> to) const override {
    std::visit([&](const auto& tokens) { std::copy_n(tokens.begin() + first, to.size(), to.begin()); }, tokens_);
  }

  std::shared_ptr<const tokenizers::Tokenizer> tokenizer() const override { return tokenizer_; }

 private:
  std::string path_;
  uint64_t content_hash_ = 0;
  std::vector<int64_t> ends_;  // end of each file, in tokens
  std::shared_ptr<const tokenizers::Tokenizer> tokenizer_;
  std::variant<std::vector<uint8_t>, std::vector<uint16_t>, std::vector<int32_t>> tokens_;
};

/// Makes samples with each file as a text.
std::unique_ptr<data::Dataset> masked_files(const TextSpec& spec, const data::DatasetRequest& request) {
  const std::vector<std::string> paths = text_paths(spec, request);
  request.tell_files(paths);
  std::vector<std::string> contents = read_texts(paths);
  warn_of_binary(paths, contents);
  warn_of_records(paths, contents);
  std::vector<Draft> texts(paths.size());
  for (size_t i = 0; i < paths.size(); ++i) {
    texts[i].texts.push_back({.text = std::move(contents[i])});
    texts[i].place = paths[i];
  }
  return std::make_unique<TextSamples>(request, std::move(texts), counted(std::ssize(paths), "file"));
}

struct Text {
  static std::unique_ptr<data::Dataset> make(const TextSpec& spec, const data::DatasetRequest& request) {
    if (request.model.target == Target::masked) return masked_files(spec, request);
    return std::make_unique<datasets::TokenWindows>(std::make_shared<TextSource>(spec, request), request);
  }
};

const config::Registered<Text, TextSpec> registered_text{data::catalog(), "text", "plain text, by any tokenizer"};

}  // namespace
}  // namespace gputrain::records
