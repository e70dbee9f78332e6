#include "unread_columns.hpp"

#include <algorithm>
#include <array>
#include <string_view>

#include "gputrain/core/log.hpp"
#include "gputrain/core/lower_case.hpp"
#include "gputrain/core/numbers.hpp"
#include "gputrain/core/printable.hpp"

namespace gputrain::records {
namespace {

constexpr std::array<std::string_view, 20> kMeant{"text",      "text_pair",     "prompt",      "completion",
                                                  "messages",  "conversations", "instruction", "input",
                                                  "output",    "question",      "response",    "system",
                                                  "history",   "weight",        "context",     "tools",
                                                  "functions", "documents",     "rejected",    "chat_template_kwargs"};

bool is_meant(const std::string& name) {
  return std::ranges::find(kMeant, lower_case(name)) != kMeant.end() || name.starts_with("negative");
}

bool has_value(const nlohmann::ordered_json& value) {
  return !value.is_null() && !((value.is_string() && value.get_ref<const std::string&>().empty()) ||
                               (value.is_structured() && value.empty()));
}

}  // namespace

UnreadColumns unread_columns(
    const AllRecords& all,
    const std::function<std::vector<std::string>(const nlohmann::ordered_json& record)>& columns_of) {
  UnreadColumns unread{.records = {}, .of = std::ssize(all.records)};
  for (const std::string& name : all.left_out) unread.records[name] = unread.of;
  for (const Record& record : all.records) {
    if (!record.problem.empty() || !record.value.is_object()) continue;
    const std::vector<std::string> read = columns_of(record.value);
    for (const auto& [name, value] : record.value.items())
      if (std::ranges::find(read, name) == read.end() && has_value(value)) ++unread.records[name];
  }
  return unread;
}

std::string UnreadColumns::line() const {
  constexpr size_t kShown = 6;
  std::string text;
  size_t shown = 0;
  for (const auto& [name, count] : records) {
    if (shown++ == kShown) return text + " and " + counted(std::ssize(records) - static_cast<int64_t>(kShown), "other");
    text += (text.empty() ? "" : ", ") + printable(name.substr(0, 40));
    if (count < of) text += " (" + grouped(count) + " of " + grouped(of) + ")";
  }
  return text;
}

void UnreadColumns::warn(const std::string& where) const {
  for (const auto& [name, count] : records)
    if (is_meant(name))
      log::warning(where + ": the column '" + printable(name.substr(0, 40)) + "' of " + counted(count, "record") +
                   " is not read; data.text.columns says which are");
}

}  // namespace gputrain::records
