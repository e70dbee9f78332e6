// Arbitrary bytes as a token file, and as the index of one: an error, or every token can be read.
//
//   build/fuzz/tests/datasets/tokens_fuzzer -max_total_time=300 CORPUS tests/datasets/seeds/tokens
#include <filesystem>
#include <vector>

#include "gputrain/datasets/token_file.hpp"
#include "support/fuzzed_file.hpp"

namespace {

using gputrain::datasets::TokenFile;
using gputrain::testing::accepts;
using gputrain::testing::FuzzedFile;

void read_all(const std::string& path, const std::string& type) {
  accepts([&] {
    const TokenFile file(path, type);
    std::vector<int64_t> tokens(static_cast<size_t>(file.size()));
    file.read(0, tokens);
    if (tokens.size() > 3) file.read(2, std::span(tokens).subspan(3));
  });
}

/// Links in one folder, because an index is found by its name.
class Pair {
 public:
  Pair() : folder_(std::filesystem::temp_directory_path() / ("gputrain_fuzz_" + std::to_string(::getpid()))) {
    std::filesystem::create_directories(folder_);
  }
  ~Pair() { std::filesystem::remove_all(folder_); }

  std::string link(const std::string& tokens, const std::string& index) const {
    for (const auto& [name, target] : {std::pair{"x.bin", tokens}, std::pair{"x.idx", index}}) {
      std::filesystem::remove(folder_ / name);
      std::filesystem::create_symlink(target, folder_ / name);
    }
    return (folder_ / "x.bin").string();
  }

 private:
  std::filesystem::path folder_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const Pair pair;
  const FuzzedFile file({data, size});
  read_all(file.path(), "uint16");
  read_all(file.path(), "uint32");
  // The first byte is the number of tokens in the file of the index.
  const size_t count = size == 0 ? 0 : data[0];
  const FuzzedFile tokens(std::vector<uint8_t>(2 * count, 7)), index({data + (size > 0), size - (size > 0)});
  read_all(pair.link(tokens.path(), index.path()), "uint16");
  return 0;
}
