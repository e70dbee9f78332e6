#include <string_view>

#include "clouds.hpp"

namespace gputrain::cloud {
namespace {

/// Reader of a time from left to right; after the first mismatch it reads nothing more.
class TimeText {
 public:
  explicit TimeText(std::string_view text) : rest_(text) {}

  int digits(size_t count) {
    int value = 0;
    for (size_t i = 0; i < count && good_; ++i) {
      good_ = i < rest_.size() && rest_[i] >= '0' && rest_[i] <= '9';
      if (good_) value = 10 * value + (rest_[i] - '0');
    }
    if (good_) rest_.remove_prefix(count);
    return value;
  }

  void literal(std::string_view expected) {
    good_ = good_ && rest_.starts_with(expected);
    if (good_) rest_.remove_prefix(expected.size());
  }

  unsigned month_name() {
    constexpr std::string_view kNames = "JanFebMarAprMayJunJulAugSepOctNovDec";
    const auto found = kNames.find(rest_.substr(0, 3));
    good_ = good_ && rest_.size() >= 3 && found != std::string_view::npos && found % 3 == 0;
    if (good_) rest_.remove_prefix(3);
    return good_ ? static_cast<unsigned>(found / 3 + 1) : 0;
  }

  void weekday() {
    for (const std::string_view name : {"Mon, ", "Tue, ", "Wed, ", "Thu, ", "Fri, ", "Sat, ", "Sun, "}) {
      if (rest_.starts_with(name)) return rest_.remove_prefix(name.size());
    }
    good_ = false;
  }

  void optional_fraction() {
    if (!good_ || !rest_.starts_with('.')) return;
    rest_.remove_prefix(1);
    digits(1);
    while (good_ && !rest_.empty() && rest_.front() >= '0' && rest_.front() <= '9') rest_.remove_prefix(1);
  }

  bool all_read() const noexcept { return good_ && rest_.empty(); }

 private:
  std::string_view rest_;
  bool good_ = true;
};

struct CalendarTime {
  int year = 0;
  unsigned month = 0, day = 0;
  int hour = 0, minute = 0, second = 0;

  void read_clock(TimeText& text) {
    hour = text.digits(2);
    text.literal(":");
    minute = text.digits(2);
    text.literal(":");
    second = text.digits(2);
  }
  void read_date(TimeText& text) {
    year = text.digits(4);
    text.literal("-");
    month = static_cast<unsigned>(text.digits(2));
    text.literal("-");
    day = static_cast<unsigned>(text.digits(2));
  }
  std::optional<WallTime> utc() const {
    const auto date = std::chrono::year(year) / std::chrono::month(month) / std::chrono::day(day);
    if (!date.ok() || hour > 23 || minute > 59 || second > 60) return std::nullopt;  // 60: a leap second
    return std::chrono::sys_days(date) + std::chrono::hours(hour) + std::chrono::minutes(minute) +
           std::chrono::seconds(second);
  }
};

}  // namespace

std::optional<WallTime> read_utc_time(std::string_view text) {
  TimeText rest(text);
  CalendarTime time;
  time.read_date(rest);
  rest.literal("T");
  time.read_clock(rest);
  rest.optional_fraction();
  rest.literal("Z");
  return rest.all_read() ? time.utc() : std::nullopt;
}

std::optional<WallTime> read_http_date(std::string_view text) {
  TimeText rest(text);
  CalendarTime time;
  rest.weekday();
  time.day = static_cast<unsigned>(rest.digits(2));
  rest.literal(" ");
  time.month = rest.month_name();
  rest.literal(" ");
  time.year = rest.digits(4);
  rest.literal(" ");
  time.read_clock(rest);
  rest.literal(" GMT");
  return rest.all_read() ? time.utc() : std::nullopt;
}

std::optional<WallTime> read_china_time(std::string_view text) {
  TimeText rest(text);
  CalendarTime time;
  time.read_date(rest);
  rest.literal(" ");
  time.read_clock(rest);
  const auto as_utc = rest.all_read() ? time.utc() : std::nullopt;
  if (!as_utc) return std::nullopt;
  return *as_utc - std::chrono::hours(8);
}

}  // namespace gputrain::cloud
