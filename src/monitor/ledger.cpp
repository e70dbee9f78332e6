#include "gputrain/monitor/ledger.hpp"

#include <cstdint>
#include <utility>

#include <nlohmann/json.hpp>

#include "append_line.hpp"
#include "gputrain/checkpoint/file_seal.hpp"
#include "gputrain/core/atomic_file.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/core/json.hpp"
#include "gputrain/core/log.hpp"
#include "gputrain/core/process.hpp"
#include "read_whole.hpp"

namespace gputrain::monitor {
namespace {

/// Writes a line as JSON. Replaces invalid UTF-8, because paths and other programs' output may have any encoding.
std::string text_of(const nlohmann::json& line) {
  return line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

/// Computes the chain of a line without its "chain" field; `before` is the previous line's chain.
std::string chain_of(const std::string& before, nlohmann::json line) {
  line.erase("chain");
  const std::string text = before + text_of(line);
  checkpoint::Sealer sealer;
  sealer.add(text.data(), text.size());
  return sealer.seal().xxh3_128;
}

/// Returns the number of bytes up to the last newline.
size_t whole_lines(const std::string& text) {
  const size_t last = text.rfind('\n');
  return last == std::string::npos ? 0 : last + 1;
}

}  // namespace

Ledger::Ledger(std::filesystem::path path) : path_(std::move(path)) {
  const std::string text = read_whole(path_);
  const size_t whole = whole_lines(text);
  if (whole != text.size()) write_file_atomically(path_, text.substr(0, whole), ExitCode::environment);
  if (whole == 0) return;
  const size_t begin = text.rfind('\n', whole - 2) + 1;  // npos + 1 is 0
  const auto last = parse_json(std::string_view(text).substr(begin, whole - 1 - begin));
  if (last.is_object() && last.contains("chain") && last["chain"].is_string()) chain_ = last["chain"];
}

bool Ledger::append(const std::string& kind, const nlohmann::json& fields) {
  if (path_.empty()) return true;
  nlohmann::json line = fields;
  line["kind"] = kind;
  line["time"] = seconds_since_epoch();
  line["process_seconds"] = seconds_since_process_start();
  const std::string chain = chain_of(chain_, line);
  line["chain"] = chain;
  if (append_line(path_, text_of(line) + "\n", /*sync=*/true)) {
    chain_ = chain;
    return true;
  }
  if (!std::exchange(failed_, true))
    log::warning(path_.string() + ": cannot append; training continues with a gap in its ledger");
  return false;
}

LedgerContent read_ledger(const std::filesystem::path& path) {
  LedgerContent content;
  const std::string all = read_whole(path);
  std::istringstream text(all.substr(0, whole_lines(all)));
  std::string chain;
  int64_t number = 0;
  for (std::string line; std::getline(text, line);) {
    ++number;
    const std::string where = "line " + std::to_string(number) + ": ";
    auto object = parse_json(line);
    if (!object.is_object() || !object.contains("kind") || !object["kind"].is_string()) {
      content.problems.push_back(where + "is not a line of a ledger");
      continue;
    }
    const std::string own =
        object.contains("chain") && object["chain"].is_string() ? object["chain"].get<std::string>() : "";
    if (own != chain_of(chain, object))
      content.problems.push_back(where + "was changed, or a line before it is missing");
    chain = own;
    content.lines.push_back(std::move(object));
  }
  return content;
}

}  // namespace gputrain::monitor
