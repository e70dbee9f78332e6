// Whole numbers: division that rounds up, and text for people.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace gputrain {

/// Returns count / by, rounded up; `count` must not be negative.
constexpr int64_t ceil_divide(int64_t count, int64_t by) noexcept { return count / by + (count % by == 0 ? 0 : 1); }

std::string grouped(int64_t value);                         // 12,345,678
std::string counted(int64_t count, std::string_view noun);  // "1 sample", "2,000 samples", "3 classes"

}  // namespace gputrain
