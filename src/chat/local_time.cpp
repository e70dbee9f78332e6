#include "gputrain/chat/local_time.hpp"

#include <array>
#include <mutex>

namespace gputrain::chat {
namespace {

constexpr const char* kFormat = "%Y-%m-%dT%H:%M:%S";

std::mutex mutex;
std::optional<std::tm> set_time;

}  // namespace

std::tm local_time() {
  {
    const std::lock_guard lock(mutex);
    if (set_time) return *set_time;
  }
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::localtime_r(&now, &parts);
  return parts;
}

void set_local_time(const std::tm& time) {
  const std::lock_guard lock(mutex);
  set_time = time;
}

std::string text_of(const std::tm& time) {
  std::array<char, 64> text{};
  return {text.data(), std::strftime(text.data(), text.size(), kFormat, &time)};
}

std::optional<std::tm> local_time_from(const std::string& text) {
  std::tm time{};
  const char* const end = ::strptime(text.c_str(), kFormat, &time);
  if (end == nullptr || *end != '\0') return std::nullopt;
  return time;  // with the day of the week
}

}  // namespace gputrain::chat
