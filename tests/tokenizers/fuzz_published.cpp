// Arbitrary bytes as the file of a published tokenizer, and text for it: an error, or tokens of its vocabulary. The
// last byte says how many bytes before it are the text; the rest is the file, which may hold any bytes.
//
//   build/fuzz/tests/tokenizers/published_fuzzer -max_total_time=300 CORPUS tests/tokenizers/seeds
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "gputrain/tokenizers/published.hpp"
#include "support/fuzzed_file.hpp"

namespace {

/// A folder of this process, removed at its end.
struct Folder {
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "gputrain_fuzz_XXXXXX").string();
    gputrain::testing::require(::mkdtemp(name.data()) != nullptr);
    path = name;
  }
  ~Folder() { std::filesystem::remove_all(path); }
  std::filesystem::path path;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace gputrain::testing;
  namespace tokenizers = gputrain::tokenizers;
  static const Folder folder;
  const std::string input(reinterpret_cast<const char*>(data), size);
  if (size == 0) return 0;
  const size_t text_size = std::min<size_t>(data[size - 1], size - 1), file_size = size - 1 - text_size;
  const std::string content = input.substr(0, file_size), text = input.substr(file_size, text_size);
  const auto path = folder.path / (content.starts_with('{') ? "tokenizer.json" : "tokenizer.model");
  std::ofstream(path, std::ios::binary) << content;
  std::shared_ptr<const tokenizers::PublishedTokenizer> tokenizer;
  if (!accepts([&] { tokenizer = tokenizers::read_published(path); })) return 0;
  accepts([&] {
    const auto tokens = tokenizer->encode(text, "text");
    for (const int64_t token : tokens) require(token >= 0 && token < tokenizer->vocabulary_size());
    tokenizer->decode(tokens);
    const auto traced = tokenizer->encode_traced(text, "text");
    require(traced.tokens == tokens && traced.ranges.size() == tokens.size());
    for (const auto& [begin, last] : traced.ranges) require(begin <= last && last <= text.size());
    tokenizer->encode_whole(text, "text");
  });
  return 0;
}
