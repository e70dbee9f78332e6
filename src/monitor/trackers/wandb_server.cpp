#include "wandb_server.hpp"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string_view>

#include "gputrain/core/base64.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/core/json.hpp"
#include "gputrain/core/printable.hpp"
#include "gputrain/core/secrets.hpp"
#include "wandb_rows.hpp"

namespace gputrain::monitor::wandb {
namespace {

using nlohmann::json;

constexpr const char* kUpsert = R"(
mutation UpsertBucket ($id: String, $name: String, $project: String, $entity: String, $displayName: String,
                       $config: JSONString) {
  upsertBucket(input: {id: $id, name: $name, modelName: $project, entityName: $entity, displayName: $displayName,
                       config: $config}) {
    bucket { id name displayName historyLineCount project { name entity { name } } }
  }
})";

constexpr const char* kResumeStatus = R"(
query RunResumeStatus ($project: String, $entity: String, $name: String!) {
  model(name: $project, entityName: $entity) {
    bucket(name: $name, missingOk: true) { id historyLineCount historyTail }
  }
})";

/// Returns the key that `wandb login` has kept for a host; empty: none.
std::string kept_key(const std::string& address, const Lookup& lookup) {
  const std::string host = address.substr(address.find("://") + 3);
  const auto home = environment_or(lookup, "HOME", "");
  std::ifstream file(environment_or(lookup, "NETRC", home + "/.netrc"));
  bool is_ours = false;
  for (std::string word; file >> word;) {
    if (word == "default") is_ours = false;
    if (word == "machine" && file >> word) is_ours = word == host.substr(0, host.find('/'));
    if (word == "password" && file >> word && is_ours) return word;
  }
  return {};
}

/// Returns the address of the pages, as `wandb` makes it of that for programs.
std::string pages_of(const std::string& address, const Lookup& lookup) {
  constexpr std::string_view kPart = "://api.";
  std::string pages = environment_or(lookup, "WANDB_APP_URL", "");
  if (pages.empty()) {
    pages = address;
    const bool is_cloud = pages.find("://api.wandb.") != std::string::npos;
    if (const auto at = pages.find(kPart); at != std::string::npos)
      pages.replace(at, kPart.size(), is_cloud ? "://" : "://app.");
  }
  while (pages.ends_with('/')) pages.pop_back();
  return pages;
}

/// Returns the mode that is asked for; `auto` if none is.
std::string asked_mode(const WandbSpec& spec, const Lookup& lookup) {
  if (spec.mode != "auto") return spec.mode;
  const std::string asked = environment_or(lookup, "WANDB_MODE", "auto");
  if (asked == "run") return "online";  // older names
  if (asked == "dryrun") return "offline";
  if (asked == "auto" || asked == "online" || asked == "offline" || asked == "disabled") return asked;
  throw Error(
      ExitCode::usage,
      {.what = "is no mode: " + printable(asked), .where = "WANDB_MODE", .hint = "online, offline or disabled"});
}

/// Returns the last step of lines that JSON may not be able to read: they have NaN.
int64_t last_step_of(const json& tail) {
  constexpr std::string_view kName = R"("_step":)";
  int64_t last = -1;
  for (const json& line : parse_json(tail.is_string() ? tail.get<std::string>() : "[]")) {
    const std::string text = line.is_string() ? line.get<std::string>() : line.dump();
    const auto at = text.find(kName);
    if (at == std::string::npos) continue;
    const auto digits = text.find_first_not_of(' ', at + kName.size());
    int64_t step = -1;
    if (digits != std::string::npos) std::from_chars(text.data() + digits, text.data() + text.size(), step);
    last = std::max(last, step);
  }
  return last;
}

json or_null(const std::string& text) { return text.empty() ? json() : json(text); }

}  // namespace

Access access_of(const WandbSpec& spec, const Lookup& lookup) {
  const std::string mode = asked_mode(spec, lookup);
  const std::string where = spec.mode == "auto" ? "WANDB_MODE" : "log.wandb.mode";
  if (mode == "disabled") return {.mode = Mode::disabled, .why = "disabled by WANDB_MODE"};
  if (mode == "offline") return {.why = "offline: " + where};
  Access access{.mode = Mode::online};
  access.address = environment_or(lookup, "WANDB_BASE_URL", "https://api.wandb.ai");
  while (access.address.ends_with('/')) access.address.pop_back();
  if (!is_server_address(access.address))
    throw Error(ExitCode::usage, {.what = "is no address: " + without_url_secrets(access.address),
                                  .where = "WANDB_BASE_URL",
                                  .hint = "write http:// or https://, for instance https://api.wandb.ai"});
  access.pages = pages_of(access.address, lookup);
  access.key = environment_or(lookup, "WANDB_API_KEY", kept_key(access.address, lookup));
  if (!access.key.empty()) return access;
  const std::string missing = "no key for " + without_url_secrets(access.address);
  const std::string hint = "set WANDB_API_KEY, or run `wandb login`";
  if (mode == "online")
    throw Error(ExitCode::usage, {.what = "is online, but there is " + missing, .where = where, .hint = hint});
  return {.why = "offline: " + missing + " (" + hint + ")"};
}

Server::Server(const Access& access)
    : server_("Weights & Biases", access.address, "Basic " + to_base64("api:" + access.key)), pages_(access.pages) {}

json Server::query(const std::string& text, const json& variables) {
  const auto answer = server_.post("graphql", {{"query", text}, {"variables", variables}});
  if (!answer) server_.fail("answers 404: the project is not there, or not for this key");
  if (const auto said = text_if_at(*answer, "/errors/0/message"))
    server_.fail(without_url_secrets(printable("says: " + said->substr(0, 300))));
  return answer->value("data", json::object());
}

Shown Server::begin(const Run& run, bool may_be_there) {
  Shown shown;
  json id;
  if (may_be_there) {
    const json found =
        query(kResumeStatus, {{"project", run.project}, {"entity", or_null(run.entity)}, {"name", run.id}});
    const json bucket = found.value(json::json_pointer("/model/bucket"), json());
    if (bucket.is_object()) {
      id = bucket.value("id", json());
      shown.last_step = last_step_of(bucket.value("historyTail", json()));
    }
  }
  std::string config;
  for (const auto& [key, value] : run.config)
    config += (config.empty() ? "{" : ",") + json_of(key) + R"(:{"value":)" + value + "}";
  const json answer = query(kUpsert, {{"id", id},
                                      {"name", run.id},
                                      {"project", run.project},
                                      {"entity", or_null(run.entity)},
                                      {"displayName", run.name},
                                      {"config", config.empty() ? "{}" : config + "}"}});
  const json bucket = answer.value(json::json_pointer("/upsertBucket/bucket"), json());
  const auto entity = text_if_at(bucket, "/project/entity/name"), project = text_if_at(bucket, "/project/name");
  const auto name = text_if_at(bucket, "/name");
  if (!entity || !project || !name) server_.fail("does not answer as Weights & Biases: it names no run");
  const std::string place = percent_encoded(*entity) + "/" + percent_encoded(*project) + "/";
  run_path_ = "files/" + place + percent_encoded(*name) + "/file_stream";
  shown.link = without_url_secrets(pages_) + "/" + place + "runs/" + percent_encoded(*name);
  const json lines = bucket.value("historyLineCount", json());
  if (lines.is_number_integer()) shown.lines = lines.get<int64_t>();
  return shown;
}

void Server::send(int64_t offset, const std::vector<std::string>& lines, const std::string& summary,
                  std::optional<int> exit_code) {
  json content;
  content["files"]["wandb-summary.json"] = {{"offset", 0}, {"content", json::array({summary})}};
  if (!lines.empty()) content["files"]["wandb-history.jsonl"] = {{"offset", offset}, {"content", lines}};
  if (exit_code) {
    content["complete"] = true;
    content["exitcode"] = *exit_code;
  }
  stream(content);
}

void Server::beat() { stream(json::object()); }

void Server::stream(const json& content) {
  if (!server_.post(run_path_, content)) server_.fail("answers 404: the run is not there any more");
}

}  // namespace gputrain::monitor::wandb
