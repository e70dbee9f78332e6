// Any bytes as text: refused with its place, or numbered and turned back into the same bytes. And as a pattern for
// files, which must come to an end.
//
//   build/fuzz/tests/datasets/text_fuzzer -max_total_time=300 CORPUS
#include <climits>
#include <string_view>

#include "../../src/datasets/file_list.hpp"
#include "../../src/datasets/vocabulary.hpp"
#include "support/fuzzed_file.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace gputrain::datasets;
  using namespace gputrain::testing;
  const std::string text(reinterpret_cast<const char*>(data), size);
  std::vector<int64_t> tokens;
  Vocabulary::of_bytes().encode(text, "f", tokens);
  require(Vocabulary::of_bytes().decode(tokens) == text);
  if (accepts([&] { check_utf8(text, "f"); })) {
    const Vocabulary vocabulary = Vocabulary::of_characters({&text, 1});
    tokens.clear();
    vocabulary.encode(text, "f", tokens);
    require(vocabulary.decode(tokens) == text);
    require(vocabulary.size() <= static_cast<int64_t>(size));
  }
  const size_t half = std::min(size / 2, size_t{100});
  matches_glob(std::string_view(text).substr(0, half), std::string_view(text).substr(half, PATH_MAX));
  return 0;
}
