#include <arpa/inet.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <string_view>

#include "clouds.hpp"
#include "gputrain/cloud/notice.hpp"
#include "gputrain/core/error.hpp"

namespace gputrain::cloud {
namespace {

constexpr const char* kVariable = "GPUTRAIN_METADATA_URL";

std::string known_clouds() {
  std::string names;
  for (const Cloud& cloud : clouds()) names += (names.empty() ? "" : ", ") + std::string(cloud.key);
  return names;
}

[[noreturn]] void refuse_source(std::string_view text) {
  throw Error(ExitCode::usage, {.what = std::string(kVariable) + ": '" + std::string(text) + "' is no metadata service",
                                .where = "environment",
                                .hint = "write CLOUD=http://ADDRESS:PORT with a numeric IPv4 address, several "
                                        "separated by commas; CLOUD is one of " +
                                        known_clouds()});
}

bool is_numeric_address(const std::string& address) {
  in_addr parsed{};
  return ::inet_pton(AF_INET, address.c_str(), &parsed) == 1;
}

MetadataSource source_of(std::string_view text) {
  constexpr std::string_view kScheme = "=http://";
  const auto scheme = text.find(kScheme);
  if (scheme == std::string_view::npos) refuse_source(text);
  MetadataSource source{.cloud = std::string(text.substr(0, scheme)), .address = {}};
  std::string_view place = text.substr(scheme + kScheme.size());
  if (place.ends_with('/')) place.remove_suffix(1);
  const auto colon = place.find(':');
  source.address = place.substr(0, colon);
  if (colon != std::string_view::npos) {
    const std::string_view port = place.substr(colon + 1);
    const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), source.port);
    if (error != std::errc{} || end != port.data() + port.size() || source.port == 0) refuse_source(text);
  }
  const bool known = std::ranges::any_of(clouds(), [&](const Cloud& cloud) { return cloud.key == source.cloud; });
  if (!known || !is_numeric_address(source.address)) refuse_source(text);
  return source;
}

}  // namespace

std::vector<MetadataSource> read_metadata_sources(const Lookup& lookup) {
  std::vector<MetadataSource> sources;
  const auto value = lookup(kVariable);
  if (!value || value->empty()) return sources;
  std::string_view rest = *value;
  for (;;) {
    const auto comma = rest.find(',');
    sources.push_back(source_of(rest.substr(0, comma)));
    if (comma == std::string_view::npos) return sources;
    rest.remove_prefix(comma + 1);
  }
}

std::vector<MetadataSource> read_metadata_sources() {
  return read_metadata_sources([](const char* name) -> std::optional<std::string> {
    const char* value = std::getenv(name);
    if (value == nullptr) return std::nullopt;
    return value;
  });
}

}  // namespace gputrain::cloud
