// Arbitrary bytes as a chat template: an error at a line, or a text with its generated ranges inside; always in bounded
// time and memory.
//
//   build/fuzz/tests/chat/chat_template_fuzzer -max_total_time=300 CORPUS
#include <nlohmann/json.hpp>

#include "gputrain/chat/template.hpp"
#include "support/fuzzed_file.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace gputrain;
  using testing::accepts, testing::require;
  static const auto kVariables = nlohmann::ordered_json::parse(R"({
    "messages": [{"role": "user", "content": "h\u00e9 "}, {"role": "assistant", "content": null, "tool_calls": [1.5]}],
    "tools": [{"a": {"b": [1, -2, 3e9, true, "x"]}}], "eos_token": "</s>", "add_generation_prompt": true})");
  const std::string source(reinterpret_cast<const char*>(data), size);
  accepts([&] {
    const chat::Rendered rendered = chat::Template::parse(source, "f").render(kVariables);
    size_t end = 0;
    for (const chat::Range& range : rendered.generated) {
      require(range.begin >= end && range.begin <= range.end && range.end <= rendered.text.size());
      end = range.end;
    }
  });
  return 0;
}
