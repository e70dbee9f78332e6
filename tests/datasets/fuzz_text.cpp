// Arbitrary bytes as text: an error with its position, or tokens that decode to the same bytes. Also as a file pattern:
// matching must terminate.
//
//   build/fuzz/tests/datasets/text_fuzzer -max_total_time=300 CORPUS
#include <climits>
#include <string_view>

#include "../../src/tokenizers/utf8.hpp"
#include "gputrain/datasets/file_list.hpp"
#include "gputrain/tokenizers/tokenizer.hpp"
#include "support/fuzzed_file.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace gputrain::datasets;
  namespace tokenizers = gputrain::tokenizers;
  using namespace gputrain::testing;
  const std::string text(reinterpret_cast<const char*>(data), size);
  const std::string name = "f";
  const auto tokenizer = [&](const char* kind) {
    return tokenizers::catalog().make(tokenizers::catalog().with_defaults(kind), {{&text, 1}, {&name, 1}});
  };
  const auto bytes = tokenizer("bytes");
  require(bytes->decode(bytes->encode(text, name)) == text);
  if (accepts([&] { tokenizers::check_utf8(text, name); })) {
    const auto characters = tokenizer("characters");
    require(characters->decode(characters->encode(text, name)) == text);
    require(characters->vocabulary_size() <= static_cast<int64_t>(size));
  }
  const size_t half = std::min(size / 2, size_t{100});
  matches_glob(std::string_view(text).substr(0, half), std::string_view(text).substr(half, PATH_MAX));
  return 0;
}
