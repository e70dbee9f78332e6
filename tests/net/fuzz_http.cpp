// Arbitrary bytes as a request to a run's page.
//
//   build/fuzz/tests/net/http_fuzzer -max_total_time=300 CORPUS
#include <string>

#include "gputrain/net/message.hpp"
#include "support/fuzzed_file.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace gputrain::net;
  using gputrain::testing::require;
  const std::string text(reinterpret_cast<const char*>(data), size);
  Request request;
  if (parse(text, request) == Parsed::whole) require(request.body.size() <= size && !request.path().empty());
  return 0;
}
