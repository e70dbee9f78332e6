#include "clouds.hpp"

#include <algorithm>
#include <array>

#include <nlohmann/json.hpp>

#include "gputrain/core/json.hpp"
#include "gputrain/core/lower_case.hpp"

namespace gputrain::cloud {
namespace {

using nlohmann::json;

Reading clear() { return {}; }
Reading junk() { return {.kind = Reading::Kind::junk}; }
Reading notice(std::string event, std::optional<WallTime> at, double promised_seconds) {
  return {Reading::Kind::notice, std::move(event), at, promised_seconds};
}

bool is_alphanumeric(char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

/// Reads a short printable word, else nothing. It goes into a header or is printed, so it must not inject anything.
std::optional<std::string> word_of(const net::Response& reply) {
  constexpr size_t kLongest = 1024;
  std::string_view text = reply.body;
  while (text.ends_with('\n') || text.ends_with('\r')) text.remove_suffix(1);
  const bool visible = std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c <= '~'; });
  if (reply.status != 200 || text.empty() || text.size() > kLongest || !visible) return std::nullopt;
  return std::string(text);
}

/// Returns whether this is a short name of letters, digits, '-' and '_', as clouds write events.
bool is_event_name(std::string_view text) {
  return !text.empty() && text.size() <= 64 &&
         std::all_of(text.begin(), text.end(), [](char c) { return is_alphanumeric(c) || c == '-' || c == '_'; });
}

std::string_view line_of(std::string_view body) {
  while (!body.empty() && (body.back() == '\n' || body.back() == '\r' || body.back() == ' ')) body.remove_suffix(1);
  return body;
}

/// Returns the text under a key of an object; empty if absent or of another type.
std::string text_at(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

// AWS: docs.aws.amazon.com, "Spot Instance interruption notices". The rebalance recommendation is not polled: it
// promises nothing and often comes hours before an interruption, or without one.
constexpr double kAwsNoticeSeconds = 120;

Reading read_aws(std::string_view body, const PollContext&) {
  const json action = parse_json(body);
  if (!action.is_object()) return junk();
  const std::string event = text_at(action, "action");
  const auto at = read_utc_time(text_at(action, "time"));
  if (!is_event_name(event) || !at) return junk();
  // Hibernation starts when the notice appears.
  return notice(event, event == "hibernate" ? WallTime{} : *at, kAwsNoticeSeconds);
}

constexpr std::array kAwsPolls{
    CloudPoll{.path = "/latest/meta-data/spot/instance-action", .none_is_404 = true, .read = read_aws}};

// Google: cloud.google.com/compute/docs, "Spot VMs" and "Handle GPU host maintenance events".
constexpr double kGooglePreemptSeconds = 30;
constexpr double kGoogleMaintenanceSeconds = 60;
constexpr double kGoogleGpuMaintenanceSeconds = 3600;

std::optional<std::string> identify_google(const net::Response& reply) {
  if (reply.headers.get("Metadata-Flavor") != "Google") return std::nullopt;
  return word_of(reply);
}

Reading read_google_preempted(std::string_view body, const PollContext&) {
  const std::string_view word = line_of(body);
  if (word == "FALSE") return clear();
  if (word == "TRUE") return notice("preempt", std::nullopt, kGooglePreemptSeconds);
  return junk();
}

Reading read_google_maintenance(std::string_view body, const PollContext& context) {
  const std::string_view word = line_of(body);
  if (word == "TERMINATE_ON_HOST_MAINTENANCE") {
    return notice("maintenance", std::nullopt,
                  context.has_gpu ? kGoogleGpuMaintenanceSeconds : kGoogleMaintenanceSeconds);
  }
  // NONE, or a live migration, leaves the machine running.
  return is_event_name(word) ? clear() : junk();
}

constexpr std::array kGooglePolls{
    CloudPoll{.path = "/computeMetadata/v1/instance/preempted", .read = read_google_preempted},
    CloudPoll{.path = "/computeMetadata/v1/instance/maintenance-event", .read = read_google_maintenance}};

// Azure: learn.microsoft.com, "Scheduled Events for Linux VMs". The list has the events of all machines of a scale set
// or availability set; only those that name this machine count.
enum class Concerns { this_machine, another, unclear };

Concerns concerns(const json& event, const std::string& machine) {
  const auto resources = event.find("Resources");
  if (resources == event.end() || !resources->is_array()) return Concerns::unclear;
  for (const json& resource : *resources) {
    if (!resource.is_string()) return Concerns::unclear;
    if (lower_case(resource.get_ref<const std::string&>()) == lower_case(machine)) return Concerns::this_machine;
  }
  return Concerns::another;
}

Reading read_azure_event(const json& event, const PollContext& context) {
  if (!event.is_object()) return junk();
  const std::string type = text_at(event, "EventType");
  if (!is_event_name(type)) return junk();
  constexpr std::array kTakesTheMachine{"Preempt", "Terminate", "Reboot", "Redeploy"};
  if (std::ranges::find(kTakesTheMachine, type) == kTakesTheMachine.end()) return clear();  // Freeze lasts seconds
  const Concerns whom = concerns(event, context.identity);
  if (whom == Concerns::unclear) return junk();
  const std::string status = text_at(event, "EventStatus");
  if (whom == Concerns::another || (status != "Scheduled" && status != "Started")) return clear();
  const std::string not_before = text_at(event, "NotBefore");
  // An event that has started leaves no time.
  const auto at = not_before.empty() && status == "Started" ? WallTime{} : read_http_date(not_before);
  if (!at) return junk();
  return notice(type, at, std::numeric_limits<double>::infinity());
}

Reading read_azure(std::string_view body, const PollContext& context) {
  const json document = parse_json(body);
  if (!document.is_object()) return junk();
  const auto events = document.find("Events");
  if (events == document.end() || !events->is_array()) return junk();
  Reading worst;
  for (const json& event : *events) {
    const Reading reading = read_azure_event(event, context);
    const bool sooner =
        reading.kind == Reading::Kind::notice && (worst.kind != Reading::Kind::notice || *reading.at < *worst.at);
    if (sooner || (reading.kind == Reading::Kind::junk && worst.kind == Reading::Kind::clear)) worst = reading;
  }
  return worst;
}

constexpr std::array kAzurePolls{
    CloudPoll{.path = "/metadata/scheduledevents?api-version=2020-07-01", .read = read_azure}};

// Alibaba: alibabacloud.com/help/ecs, "Instance metadata", spot/termination-time.
constexpr double kAlibabaNoticeSeconds = 300;

Reading read_alibaba(std::string_view body, const PollContext&) {
  const auto at = read_utc_time(line_of(body));
  return at ? notice("release", at, kAlibabaNoticeSeconds) : junk();
}

constexpr std::array kAlibabaPolls{
    CloudPoll{.path = "/latest/meta-data/instance/spot/termination-time", .none_is_404 = true, .read = read_alibaba}};

// Tencent: tencentcloud.com/document/product/213/32487; metadata.tencentyun.com is 169.254.0.23.
constexpr double kTencentNoticeSeconds = 120;

std::optional<std::string> identify_tencent(const net::Response& reply) {
  auto id = word_of(reply);
  return id && id->starts_with("ins-") ? id : std::nullopt;
}

Reading read_tencent(std::string_view body, const PollContext&) {
  const auto at = read_china_time(line_of(body));
  return at ? notice("release", at, kTencentNoticeSeconds) : junk();
}

constexpr std::array kTencentPolls{
    CloudPoll{.path = "/latest/meta-data/spot/termination-time", .none_is_404 = true, .read = read_tencent}};

}  // namespace

net::Headers Cloud::headers_with(const std::string& identity) const {
  net::Headers headers;
  headers.read(std::string(header) + (uses_token() ? identity : ""));
  return headers;
}

std::span<const Cloud> clouds() {
  static const std::array table{
      Cloud{.key = "aws",
            .name = "AWS",
            .address = "169.254.169.254",
            .probe = {.method = "PUT",
                      .url = "/latest/api/token",
                      .headers = {{"X-aws-ec2-metadata-token-ttl-seconds", "21600"}}},
            .identify = word_of,
            .header = "X-aws-ec2-metadata-token: ",
            .polls = kAwsPolls},
      Cloud{.key = "google",
            .name = "Google",
            .address = "169.254.169.254",  // metadata.google.internal
            .probe = {.url = "/computeMetadata/v1/instance/id", .headers = {{"Metadata-Flavor", "Google"}}},
            .identify = identify_google,
            .header = "Metadata-Flavor: Google",
            .polls = kGooglePolls},
      Cloud{.key = "azure",
            .name = "Azure",
            .address = "169.254.169.254",
            .probe = {.url = "/metadata/instance/compute/name?api-version=2021-02-01&format=text",
                      .headers = {{"Metadata", "true"}}},
            .identify = word_of,
            .header = "Metadata: true",
            .polls = kAzurePolls},
      Cloud{.key = "alibaba",
            .name = "Alibaba",
            .address = "100.100.100.200",
            .probe = {.method = "PUT",
                      .url = "/latest/api/token",
                      .headers = {{"X-aliyun-ecs-metadata-token-ttl-seconds", "21600"}}},
            .identify = word_of,
            .header = "X-aliyun-ecs-metadata-token: ",
            .polls = kAlibabaPolls},
      Cloud{.key = "tencent",
            .name = "Tencent",
            .address = "169.254.0.23",  // metadata.tencentyun.com
            .probe = {.url = "/latest/meta-data/instance-id"},
            .identify = identify_tencent,
            .header = "",
            .polls = kTencentPolls},
  };
  return table;
}

}  // namespace gputrain::cloud
