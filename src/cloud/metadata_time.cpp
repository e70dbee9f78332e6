#include <ctime>
#include <string>
#include <string_view>

#include "clouds.hpp"

namespace gputrain::cloud {
namespace {

std::optional<WallTime> read_time(const std::string& text, const char* format) {
  std::tm parts{};
  if (::strptime(text.c_str(), format, &parts) == nullptr) return std::nullopt;
  const WallTime time{std::chrono::seconds(::timegm(&parts))};
  // strptime also takes spaces, single digits and 30 February, which are no longer the same when they are written.
  char again[40];
  return text == std::string_view(again, std::strftime(again, sizeof(again), format, &parts)) ? std::optional(time)
                                                                                              : std::nullopt;
}

}  // namespace

std::optional<WallTime> read_utc_time(std::string_view text) {
  std::string seconds(text);
  constexpr size_t kFraction = 19;
  if (seconds.find('.') == kFraction) {
    const size_t end = seconds.find_first_not_of("0123456789", kFraction + 1);
    if (end == kFraction + 1) return std::nullopt;
    seconds.erase(kFraction, end - kFraction);
  }
  return read_time(seconds, "%Y-%m-%dT%H:%M:%SZ");
}

std::optional<WallTime> read_http_date(std::string_view text) {
  return read_time(std::string(text), "%a, %d %b %Y %H:%M:%S GMT");
}

std::optional<WallTime> read_china_time(std::string_view text) {
  const auto as_utc = read_time(std::string(text), "%Y-%m-%d %H:%M:%S");
  if (!as_utc) return std::nullopt;
  return *as_utc - std::chrono::hours(8);
}

}  // namespace gputrain::cloud
