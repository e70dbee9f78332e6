// Any bytes as a job: load() must reject them with a page, or read them and write them back unchanged. A zero byte
// starts the next --set.
//
//   build/fuzz/tests/config/yaml_fuzzer -max_total_time=300 CORPUS tests/config/broken
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>

#include "config/sample_job.hpp"
#include "gputrain/config/load.hpp"

namespace {

using gputrain::config::Loaded;
using gputrain::config::Request;
using gputrain::config::SampleJob;
using gputrain::config::SpecError;

Request request_of(std::string_view bytes) {
  Request request;
  request.file = "job.yaml";
  request.environment = [](const std::string& name) {
    return name == "HOME" ? std::optional<std::string>("/home/someone") : std::nullopt;
  };
  const size_t end = std::min(bytes.find('\0'), bytes.size());
  request.text = std::string(bytes.substr(0, end));
  while (bytes.size() > bytes.find('\0')) {
    bytes.remove_prefix(bytes.find('\0') + 1);
    request.set.emplace_back(bytes.substr(0, bytes.find('\0')));
  }
  return request;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const Request request = request_of({reinterpret_cast<const char*>(data), size});
  if (request.text->find("include") != std::string::npos) return 0;  // no file access here
  const auto& schema = gputrain::config::schema_of<SampleJob>();
  std::optional<Loaded> loaded;
  try {
    loaded.emplace(gputrain::config::load(schema, request));
  } catch (const SpecError& error) {
    if (error.problems().empty() || error.render(true).empty()) std::abort();
    return 0;
  }
  const Loaded again = gputrain::config::load(schema, {.text = loaded->resolved_yaml()});
  if (again.settings() != loaded->settings()) std::abort();
  return 0;
}
