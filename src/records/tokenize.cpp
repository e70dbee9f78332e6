#include "gputrain/records/tokenize.hpp"

#include <algorithm>
#include <atomic>
#include <exception>
#include <memory>
#include <string_view>
#include <thread>
#include <utility>

#include <nlohmann/json.hpp>

#include "gputrain/core/atomic_file.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/core/file_kind.hpp"
#include "gputrain/datasets/text_file.hpp"
#include "gputrain/datasets/token_file.hpp"
#include "gputrain/tokenizers/published.hpp"

namespace gputrain::records {
namespace {

using nlohmann::json;

struct Document {
  std::string text, name;
};

/// Number of the token after each document; none: there is none.
std::optional<int64_t> end_token(const TokenizeRequest& request, const tokenizers::PublishedTokenizer& tokenizer) {
  const std::string spelling = request.end.value_or(tokenizers::end_token_beside(request.tokenizer));
  if (spelling == "none") return std::nullopt;
  if (spelling.empty())
    throw Error(ExitCode::usage, {.what = "the tokenizer does not say which token ends a document",
                                  .where = request.tokenizer,
                                  .hint = "--eos '<|endoftext|>', or --eos none"});
  const auto token = tokenizer.find(spelling);
  if (!token)
    throw Error(ExitCode::usage, {.what = "the tokenizer has no token '" + spelling + "' to end a document",
                                  .where = request.tokenizer,
                                  .hint = "--eos with a token of it, or --eos none"});
  return token;
}

/// The document of a line of JSON.
std::string text_of(std::string_view line, const std::string& place) {
  const json value = json::parse(line, nullptr, /*allow_exceptions=*/false);
  const auto fail = [&](const std::string& what) {
    throw Error(ExitCode::data, {.what = what, .where = place, .hint = "each line is {\"text\": \"...\"}"});
  };
  if (value.is_discarded()) fail("the line is not JSON");
  if (!value.is_object() || !value.contains("text") || !value["text"].is_string())
    fail("the line has no text under \"text\"");
  return value["text"].get<std::string>();
}

/// A file of another kind would become tokens without a word.
void check_is_text(const std::string& text, const std::string& path) {
  const FileKind kind = file_kind(text);
  if (kind.type != FileType::unknown && !kind.is_text() && kind.type != FileType::web_page)
    throw Error(ExitCode::data,
                {.what = std::string(kind.name) + ", not text", .where = path, .hint = std::string(kind.remedy)});
}

/// Writes token files block by block; documents of a block are encoded by several threads.
class Writer {
 public:
  Writer(const TokenizeRequest& request, const std::function<void(const TokenizeReport&)>& progress)
      : tokenizer_(tokenizers::read_published(request.tokenizer)),
        end_(end_token(request, *tokenizer_)),
        threads_(std::max(1, request.threads)),
        progress_(progress),
        file_(request.output, ExitCode::environment) {
    report_.vocabulary_size = tokenizer_->vocabulary_size();
    report_.bytes_per_token = report_.vocabulary_size <= UINT16_MAX + 1 ? 2 : 4;
    header_ = datasets::token_file_header(report_.bytes_per_token, 0);
    file_.write(header_);
  }

  void add(Document document) {
    block_bytes_ += std::ssize(document.text);
    block_.push_back(std::move(document));
    constexpr int64_t kBlockBytes = int64_t{16} << 20;
    if (block_bytes_ >= kBlockBytes) write_block();
  }

  TokenizeReport finish() {
    write_block();
    file_.write_at(0, header_);
    file_.commit();
    return report_;
  }

 private:
  void write_block() {
    const std::vector<Document> documents = std::exchange(block_, {});
    for (const std::vector<int64_t>& tokens : encoded(documents)) {
      report_.bytes_per_token == 2 ? write<uint16_t>(tokens) : write<uint32_t>(tokens);
      report_.tokens += std::ssize(tokens);
    }
    header_ =
        datasets::token_file_header(report_.bytes_per_token, report_.tokens);  // refuses too many before more are made
    report_.documents += std::ssize(documents);
    report_.text_bytes += std::exchange(block_bytes_, 0);
    progress_(report_);
  }

  /// Throws the error of the first document that has one.
  std::vector<std::vector<int64_t>> encoded(const std::vector<Document>& documents) const {
    std::vector<std::vector<int64_t>> all(documents.size());
    std::vector<std::exception_ptr> failures(documents.size());
    std::atomic<size_t> next = 0;
    const auto work = [&] {
      for (size_t i = next++; i < documents.size(); i = next++) {
        try {
          all[i] = tokenizer_->encode(documents[i].text, documents[i].name);
          if (end_) all[i].push_back(*end_);
        } catch (...) {
          failures[i] = std::current_exception();
        }
      }
    };
    {
      std::vector<std::jthread> others;
      for (int i = 1; i < std::min<int>(threads_, static_cast<int>(documents.size())); ++i) others.emplace_back(work);
      work();
    }
    for (const std::exception_ptr& failure : failures) {
      if (failure) std::rethrow_exception(failure);
    }
    return all;
  }

  template <class Stored>
  void write(const std::vector<int64_t>& tokens) {
    std::vector<Stored> stored(tokens.size());
    std::ranges::transform(tokens, stored.begin(), [](int64_t token) { return static_cast<Stored>(token); });
    file_.write(stored.data(), stored.size() * sizeof(Stored));
  }

  std::shared_ptr<const tokenizers::PublishedTokenizer> tokenizer_;
  std::optional<int64_t> end_;
  int threads_;
  const std::function<void(const TokenizeReport&)>& progress_;
  AtomicFile file_;
  std::string header_;  // for the tokens so far
  std::vector<Document> block_;
  int64_t block_bytes_ = 0;
  TokenizeReport report_;
};

bool is_json_lines(const std::string& path) {
  return path.ends_with(".jsonl") || path.ends_with(".jsonl.gz") || path.ends_with(".ndjson");
}

void add_lines(const std::string& text, const std::string& path, Writer& writer) {
  int64_t number = 0;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = std::string_view(text).substr(begin, end - begin);
    const std::string place = path + ":" + std::to_string(++number);
    if (line.find_first_not_of(" \t\r") != std::string_view::npos) writer.add({text_of(line, place), place});
    begin = end + 1;
  }
}

}  // namespace

TokenizeReport tokenize(const TokenizeRequest& request, const std::function<void(const TokenizeReport&)>& progress) {
  Writer writer(request, progress);
  for (const std::string& path : request.files) {
    std::string text = datasets::read_text(path);
    check_is_text(text, path);
    is_json_lines(path) ? add_lines(text, path, writer) : writer.add({std::move(text), path});
  }
  return writer.finish();
}

}  // namespace gputrain::records
