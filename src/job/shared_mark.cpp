#include "gputrain/job/shared_mark.hpp"

#include <chrono>
#include <fstream>
#include <random>
#include <system_error>
#include <thread>
#include <utility>

#include <fmt/format.h>

namespace gputrain::app {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::seconds kPatience{3};
constexpr std::chrono::milliseconds kBetweenLooks{50};

/// Returns the path without a slash at its end, which would count as a name of its own.
fs::path absolute_path(const fs::path& folder) {
  std::error_code unknown;
  return fs::absolute(folder / "", unknown).lexically_normal().parent_path();
}

}  // namespace

SharedMark::SharedMark(const fs::path& folder) {
  std::error_code unknown;
  std::random_device random;
  path_ = absolute_path(folder);
  for (; !fs::exists(path_, unknown) && path_.has_relative_path(); path_ = path_.parent_path()) place_ += "../";
  const std::string name = fmt::format(".gputrain-{:08x}{:08x}", random(), random());
  place_ += name;
  path_ /= name;
  if (!std::ofstream(path_)) place_.clear();
}

SharedMark::SharedMark(SharedMark&& other) noexcept
    : path_(std::exchange(other.path_, {})), place_(std::exchange(other.place_, {})) {}

SharedMark& SharedMark::operator=(SharedMark&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(place_, other.place_);
  return *this;
}

SharedMark::~SharedMark() {
  std::error_code ignored;
  if (!place_.empty()) fs::remove(path_, ignored);
}

bool shows_mark(const fs::path& folder, const std::string& place) {
  const fs::path path = (absolute_path(folder) / place).lexically_normal();
  const auto end = std::chrono::steady_clock::now() + kPatience;
  std::error_code unknown;
  while (!fs::exists(path, unknown)) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(kBetweenLooks);
  }
  return true;
}

}  // namespace gputrain::app
