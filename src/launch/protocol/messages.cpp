#include "messages.hpp"

#include "gputrain/core/json.hpp"

namespace gputrain::launch {

void to_json(nlohmann::json& json, const RankEnd& end) {
  json = {{"rank", end.rank},
          {"process", end.process},
          {"killed", end.status.kind == ProcessStatus::Kind::killed},
          {"number", end.status.number},
          {"was_told", end.was_told},
          {"killed_by_us", end.killed_by_us},
          {"tail", end.tail},
          {"clue", end.clue},
          {"log", end.log},
          {"tells_error", end.tells_error},
          {"leaves_host", end.leaves_host}};
}

void from_json(const nlohmann::json& json, RankEnd& end) {
  end.rank = json.at("rank").get<int>();
  end.process = json.at("process").get<int>();
  end.status = {json.at("killed").get<bool>() ? ProcessStatus::Kind::killed : ProcessStatus::Kind::exited,
                json.at("number").get<int>()};
  end.was_told = json.at("was_told").get<bool>();
  end.killed_by_us = json.at("killed_by_us").get<bool>();
  end.tells_error = json.at("tells_error").get<bool>();
  end.leaves_host = json.at("leaves_host").get<bool>();
  end.tail = json.at("tail").get<std::vector<std::string>>();
  end.clue = json.at("clue").get<std::string>();
  end.log = json.at("log").get<std::string>();
}

std::string to_line(const nlohmann::json& message) {
  return message.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::optional<nlohmann::json> read_message(std::string_view line) {
  auto message = parse_json(line);
  if (!message.is_object() || !message.contains("kind") || !message["kind"].is_string()) return std::nullopt;
  return message;
}

}  // namespace gputrain::launch
