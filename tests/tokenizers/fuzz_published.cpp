// Arbitrary bytes as the file of a published tokenizer, and text for it: an error, or tokens of its vocabulary. What
// comes before the first NUL byte is the file, the rest is the text.
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
  const size_t end = std::min(input.find('\0'), input.size());
  const std::string content = input.substr(0, end), text = end < size ? input.substr(end + 1) : "a b\xc3\xa9";
  const auto path = folder.path / (content.starts_with('{') ? "tokenizer.json" : "tokenizer.model");
  std::ofstream(path, std::ios::binary) << content;
  std::shared_ptr<const tokenizers::PublishedTokenizer> tokenizer;
  if (!accepts([&] { tokenizer = tokenizers::read_published(path); })) return 0;
  accepts([&] {
    const auto tokens = tokenizer->encode(text, "text");
    for (const int64_t token : tokens) require(token >= 0 && token < tokenizer->vocabulary_size());
    tokenizer->decode(tokens);
    tokenizer->encode_whole(text, "text");
  });
  return 0;
}
