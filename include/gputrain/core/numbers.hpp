// Numbers as people read them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace gputrain {

std::string grouped(int64_t value);                         // 12,345,678
std::string counted(int64_t count, std::string_view noun);  // "1 sample", "2,000 samples", "3 classes"

}  // namespace gputrain
