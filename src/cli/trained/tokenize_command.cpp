// Command `gputrain data tokenize`: turns text into a token file.
#include <chrono>
#include <string>

#include "../commands.hpp"
#include "gputrain/core/numbers.hpp"
#include "gputrain/device/host.hpp"
#include "gputrain/hub/cache.hpp"
#include "gputrain/monitor/console.hpp"
#include "gputrain/monitor/format.hpp"
#include "gputrain/records/tokenize.hpp"

namespace gputrain::app {

int tokenize_command(const TokenizeCommand& command) {
  monitor::Console console(monitor::Console::detect(true));
  const auto begin = std::chrono::steady_clock::now();
  const auto so_far = [&](const records::TokenizeReport& report) {
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    return counted(report.tokens, "token") + " of " + counted(report.documents, "document") + "  " +
           monitor::bytes(static_cast<double>(report.text_bytes) / took.count()) + "/s";
  };
  records::TokenizeRequest request{.files = command.files,
                                   .tokenizer = hub::pretrained_path(command.tokenizer).string(),
                                   .output = command.output,
                                   .end = {},
                                   .threads = device::cpus_of_rank(1)};
  if (!command.end.empty()) request.end = command.end;
  const auto report =
      records::tokenize(request, [&](const records::TokenizeReport& now) { console.status(so_far(now)); });
  console.show("tokens", so_far(report));
  console.show("file", command.output + "  " + std::to_string(8 * report.bytes_per_token) + " bits each");
  console.show("job", "data: {train: {format: tokens, path: " + command.output +
                          ", vocab_size: " + std::to_string(report.vocabulary_size) + "}}");
  return 0;
}

}  // namespace gputrain::app
