// Numbers as people read them.
#pragma once

#include <cstdint>
#include <string>

namespace gputrain {

std::string grouped(int64_t value);  // 12,345,678

}  // namespace gputrain
