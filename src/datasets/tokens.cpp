// Token ids from other tools: llm.c, nanoGPT, Megatron. Read from the files on demand.
#include <algorithm>
#include <array>
#include <filesystem>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "gputrain/core/error.hpp"
#include "gputrain/core/log.hpp"
#include "gputrain/core/numbers.hpp"
#include "gputrain/data/content_hash.hpp"
#include "gputrain/data/options.hpp"
#include "gputrain/data/signature.hpp"
#include "gputrain/datasets/file_list.hpp"
#include "gputrain/datasets/left_out.hpp"
#include "gputrain/datasets/token_file.hpp"
#include "gputrain/datasets/token_windows.hpp"

namespace gputrain::datasets {
namespace {

struct TokensSpec {
  std::string dtype = "uint16";
  config::Auto<int64_t> vocab_size;

  static void describe(config::Description<TokensSpec>& d) {
    d.summary(
        "token ids in .bin files of llm.c, nanoGPT or Megatron; a path, a pattern, or a folder of *train*.bin etc.");
    d.key("dtype", &TokensSpec::dtype, "type of the ids in files without a header (nanoGPT)")
        .choices({"uint16", "uint32"});
    d.key("vocab_size", &TokensSpec::vocab_size,
          "all ids are below this; auto: from the header (llm.c), or the highest id + 1, found by reading all files")
        .range(1, int64_t{1} << 31)
        .unit("tokens");
  }
};

std::string role_name(data::Split role) {
  switch (role) {
    case data::Split::train:
      return "train";
    case data::Split::val:
      return "val";
    case data::Split::test:
      return "test";
  }
  return {};
}

/// Escapes the path, so that the pattern matches only this path.
std::string as_pattern(const std::string& path) {
  std::string pattern;
  for (const char c : path)
    pattern += (std::string_view("*?[{\\").find(c) == std::string_view::npos ? "" : "\\") + std::string(1, c);
  return pattern;
}

/// Warns of files that may be parts of the data: packed, not whole yet, or NumPy's.
void warn_of_other_parts(const std::string& folder, const std::string& role) {
  LeftOut others;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    const auto ends = [&](const char* ending) { return name.ends_with(ending); };
    if (name.starts_with('.') || name.find(role) == std::string::npos) continue;
    if (std::ranges::any_of(std::array{".npy", ".bin.gz", ".bin.zst", ".bin.xz", ".bin.part", ".bin.tmp"}, ends))
      others.add(name);
  }
  others.warn(folder, "file", "that may hold tokens but is not named .bin");
}

std::vector<std::string> token_paths(const data::DatasetRequest& request) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  if (fs::is_directory(request.path, ignored)) {
    warn_of_other_parts(request.path, role_name(request.role));
    return expand_pattern(fs::path(as_pattern(request.path)) / ("*" + role_name(request.role) + "*.bin"));
  }
  // Megatron names its pair of files without extensions.
  const std::string pair = fs::exists(request.path, ignored) ? "" : request.path;
  if (!pair.empty() && fs::exists(pair + ".idx", ignored)) return {pair + ".bin"};
  if (!pair.empty() && fs::exists(pair + ".bin", ignored))
    throw Error(ExitCode::data, {.what = pair + ".bin is there, but its index " + pair + ".idx is not",
                                 .where = pair,
                                 .hint = "path: " + pair + ".bin, if it is no Megatron file and needs no index"});
  return expand_pattern(request.path);
}

/// Warns of the first unlikely file; never refuses, for such files are valid tokens too.
void warn_of_unlikely_numbers(const std::vector<TokenFile>& files) {
  for (const TokenFile& file : files) {
    const std::string doubt = file.doubt();
    if (!doubt.empty()) return log::warning(file.path() + " " + doubt);
  }
}

/// Refuses such tokens, which a file of 16-bit numbers has that is read as 32-bit ones.
void refuse_as_vocabulary(int64_t highest, const std::string& path) {
  constexpr int64_t kMostLikely = 1 << 24;
  if (highest < kMostLikely) return;
  throw Error(ExitCode::data,
              {.what = "the highest token is " + grouped(highest) + ", more than a vocabulary has",
               .where = path,
               .hint = "check `dtype` beside `format: tokens`; if it is right, set `vocab_size` there"});
}

class FileTokens final : public TokenSource {
 public:
  FileTokens(const TokensSpec& spec, const data::DatasetRequest& request) : name_(request.path) {
    const std::vector<std::string> paths = token_paths(request);
    request.tell_files(paths);
    for (const std::string& path : paths) {
      const TokenFile& file = files_.emplace_back(path, spec.dtype);
      size_ += file.size();
      ends_.push_back(size_);
    }
    warn_of_unlikely_numbers(files_);
    const int64_t implied = implied_vocabulary(), learned = request.train ? request.train->layout.vocabulary : 0;
    vocabulary_size_ = learned > 0 ? learned : spec.vocab_size.value.value_or(implied);
    if (vocabulary_size_ == 0) {
      const int64_t highest = highest_token();
      refuse_as_vocabulary(highest, name_);
      vocabulary_size_ = std::max<int64_t>(highest, 0) + 1;
    }
    if (learned > 0 && (implied == 0 || implied > vocabulary_size_)) check_all();
  }

  int64_t size() const override { return size_; }
  int64_t vocabulary_size() const override { return vocabulary_size_; }
  std::string name() const override { return name_; }
  std::string describe(int64_t begin, int64_t end) const override { return files_between(ends_, begin, end); }

  uint64_t content_hash() const override {
    return data::content_hash(std::ssize(files_), [this](int64_t index) {
      return data::content_of(files_[static_cast<size_t>(index)].file());
    });
  }

  void read(int64_t first, std::span<int64_t> tokens) const override {
    auto index = static_cast<size_t>(std::upper_bound(ends_.begin(), ends_.end(), first) - ends_.begin());
    while (!tokens.empty()) {
      const TokenFile& file = files_[index];
      const int64_t inside = first - (ends_[index] - file.size());
      const auto part = tokens.first(static_cast<size_t>(std::min(std::ssize(tokens), file.size() - inside)));
      file.read(inside, part);
      check(part, file, inside);
      tokens = tokens.subspan(part.size());
      first += std::ssize(part);
      ++index;
    }
  }

 private:
  void check(std::span<const int64_t> tokens, const TokenFile& file, int64_t first) const {
    int64_t lowest = 0, highest = 0;
    for (const int64_t token : tokens) {
      lowest = std::min(lowest, token);
      highest = std::max(highest, token);
    }
    if (lowest >= 0 && highest < vocabulary_size_) return;
    throw Error(ExitCode::data,
                {.what = "token " + std::to_string(lowest < 0 ? lowest : highest) + " near position " +
                         std::to_string(first) + " is outside the vocabulary of " + std::to_string(vocabulary_size_),
                 .where = file.path(),
                 .hint = "check `dtype`, and `vocab_size` of data.train, beside `format: tokens`"});
  }

  int64_t implied_vocabulary() const {
    int64_t most = 0;
    for (const TokenFile& file : files_) {
      if (file.vocabulary_size() == 0) return 0;
      most = std::max(most, file.vocabulary_size());
    }
    return most;
  }

  void visit(
      const std::function<void(std::span<const int64_t> tokens, const TokenFile& file, int64_t first)>& see) const {
    constexpr int64_t kAtOnce = 1 << 18;
    std::vector<int64_t> tokens;
    for (const TokenFile& file : files_)
      for (int64_t first = 0; first < file.size(); first += kAtOnce) {
        tokens.resize(static_cast<size_t>(std::min(kAtOnce, file.size() - first)));
        file.read(first, tokens);
        see(tokens, file, first);
      }
  }

  int64_t highest_token() const {
    int64_t highest = 0;
    visit([&](auto tokens, const auto&, int64_t) {
      highest = std::max(highest, *std::max_element(tokens.begin(), tokens.end()));
    });
    return highest;
  }

  /// Checks all tokens now, because otherwise training could fail at an unknown token in its first evaluation.
  void check_all() const {
    visit([this](auto tokens, const auto& file, int64_t first) { check(tokens, file, first); });
  }

  std::string name_;
  std::vector<TokenFile> files_;
  std::vector<int64_t> ends_;  // end of each file, in tokens
  int64_t size_ = 0;
  int64_t vocabulary_size_ = 0;
};

class Tokens final : public TokenWindows {
 public:
  Tokens(const TokensSpec& spec, const data::DatasetRequest& request)
      : TokenWindows(std::make_shared<FileTokens>(spec, request), request) {}
};

const config::Registered<Tokens, TokensSpec> registered_tokens{data::catalog(), "tokens",
                                                               "token ids written by llm.c, nanoGPT or Megatron"};

}  // namespace
}  // namespace gputrain::datasets
