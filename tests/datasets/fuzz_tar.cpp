// Arbitrary bytes as a tar archive: an error, or entries inside the file that can be read. Corrects the checksums of
// headers first; otherwise nearly all inputs would fail there.
//
//   build/fuzz/tests/datasets/tar_fuzzer -max_total_time=300 CORPUS tests/datasets/seeds/tar
#include <cstdio>
#include <vector>

#include "../../src/datasets/tar_index.hpp"
#include "support/fuzzed_file.hpp"

namespace {

void mend_checksums(std::vector<uint8_t>& bytes) {
  constexpr size_t kBlock = 512, kChecksum = 148;
  for (size_t at = 0; at + kBlock <= bytes.size(); at += kBlock) {
    uint8_t* block = bytes.data() + at;
    if (block[kChecksum] != 'c') continue;  // the seeds mark headers with a 'c'
    std::fill_n(block + kChecksum, 8, uint8_t{' '});
    unsigned sum = 0;
    for (size_t i = 0; i < kBlock; ++i) sum += block[i];
    std::snprintf(reinterpret_cast<char*>(block + kChecksum), 8, "%06o", sum);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace gputrain::datasets;
  using namespace gputrain::testing;
  std::vector<uint8_t> bytes(data, data + size);
  mend_checksums(bytes);
  const FuzzedFile fuzzed(bytes);
  const gputrain::data::ReadOnlyFile file(fuzzed.path());
  accepts([&] {
    visit_tar(file, [&](TarEntry&& entry) {
      require(entry.offset >= 0 && entry.size >= 0 && entry.offset + entry.size <= file.size());
      require(static_cast<int64_t>(file.read(entry.offset, entry.size).size()) == entry.size);
      require(entry.name.size() <= 4096 && !entry.name.starts_with("./"));
    });
  });
  return 0;
}
