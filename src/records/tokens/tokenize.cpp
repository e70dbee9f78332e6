#include "gputrain/records/tokenize.hpp"

#include <algorithm>
#include <atomic>
#include <exception>
#include <limits>
#include <memory>
#include <string_view>
#include <thread>
#include <utility>

#include "../formats/record_file.hpp"
#include "gputrain/core/atomic_file.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/core/file_kind.hpp"
#include "gputrain/core/log.hpp"
#include "gputrain/datasets/text_file.hpp"
#include "gputrain/datasets/token_file.hpp"
#include "gputrain/tokenizers/published.hpp"

namespace gputrain::records {
namespace {

struct Document {
  std::string text, name;
};

/// Returns the number of the token after each document; none: there is none.
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

std::string text_of(const Record& record) {
  const auto fail = [&](const std::string& what) {
    throw Error(ExitCode::data,
                {.what = what, .where = record.place, .hint = "each record has a text: {\"text\": \"...\"}"});
  };
  if (!record.problem.empty()) fail(record.problem);
  const auto text = record.value.find("text");
  if (text == record.value.end() || !text->is_string()) fail("the record has no text under \"text\"");
  return text->get<std::string>();
}

/// Refuses a file of another kind, which would become tokens without a warning.
void check_is_text(const std::string& text, const std::string& path) {
  const FileKind kind = file_kind(text);
  if (kind.type != FileType::unknown && !kind.is_text() && kind.type != FileType::web_page)
    throw Error(ExitCode::data,
                {.what = std::string(kind.name) + ", not text", .where = path, .hint = std::string(kind.remedy)});
}

/// Writer of token files block by block; documents of a block are encoded by several threads.
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
    header_ = datasets::token_file_header(report_.bytes_per_token, report_.tokens);  // refuses too many tokens early
    report_.documents += std::ssize(documents);
    report_.text_bytes += std::exchange(block_bytes_, 0);
    progress_(report_);
  }

  /// Encodes documents. Throws the error of the first document that has one.
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
  std::string header_;  // header for the tokens so far
  std::vector<Document> block_;
  int64_t block_bytes_ = 0;
  TokenizeReport report_;
};

void add_json(const std::string& path, Writer& writer) {
  int64_t bytes_left = std::numeric_limits<int64_t>::max();  // no limit, for records are not kept
  datasets::TextWindow text(path, bytes_left);
  read_json(text, [&](const std::vector<Record>& records) {
    for (const Record& record : records) writer.add({text_of(record), record.place});
  });
}

void add_file(const std::string& path, Writer& writer) {
  const RecordFormat* format = format_of_file(path);
  if (format != nullptr && format->name == "jsonl") return add_json(path, writer);
  if (format != nullptr && format->name != "conll") {
    int64_t bytes_left = datasets::kMostTextBytes;
    for (const Record& record : format->read({.path = path, .columns = {"text"}}, bytes_left))
      writer.add({text_of(record), record.place});
    return;
  }
  std::string text = datasets::read_text(path);
  check_is_text(text, path);
  if (!is_json_records(text, /*is_whole=*/true)) return writer.add({std::move(text), path});
  log::warning(path + " has JSON objects, and is read as .jsonl: `text` of each is a document");
  add_json(path, writer);
}

}  // namespace

TokenizeReport tokenize(const TokenizeRequest& request, const std::function<void(const TokenizeReport&)>& progress) {
  Writer writer(request, progress);
  for (const std::string& path : request.files) add_file(path, writer);
  return writer.finish();
}

}  // namespace gputrain::records
