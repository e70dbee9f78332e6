// Arbitrary bytes as the answer of each cloud's metadata service.
//
//   build/fuzz/tests/cloud/clouds_fuzzer -max_total_time=300 CORPUS
#include <string>

#include "../../src/cloud/clouds.hpp"
#include "support/fuzzed_file.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace gputrain::cloud;
  const std::string text(reinterpret_cast<const char*>(data), size);
  for (const Cloud& cloud : clouds()) {
    for (const CloudPoll& poll : cloud.polls) {
      const Reading reading = poll.read(text, {.identity = "trainer-7", .has_gpu = true});
      gputrain::testing::require(reading.kind == Reading::Kind::notice || reading.event.empty());
    }
  }
  return 0;
}
