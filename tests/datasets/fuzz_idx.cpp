// Arbitrary bytes as an IDX file of images and of labels: an error, or the declared number of values.
//
//   build/fuzz/tests/datasets/idx_fuzzer -max_total_time=300 CORPUS tests/datasets/seeds/idx
#include "../../src/datasets/idx_file.hpp"
#include "support/fuzzed_file.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace gputrain::datasets;
  using namespace gputrain::testing;
  const FuzzedFile file({data, size});
  for (const size_t dimensions : {1u, 3u})
    accepts([&] {
      const IdxArray array = read_idx_file(file.path(), dimensions);
      int64_t count = 1;
      for (const int64_t length : array.sizes) count *= length;
      require(count == array.count && count > 0);
      unsigned sum = 0;
      for (int64_t i = 0; i < count; ++i) sum += array.values[static_cast<size_t>(i)];
      require(sum <= 255u * static_cast<uint64_t>(count));
    });
  return 0;
}
