#pragma once

#include <string>

namespace gputrain::app {

std::string version();  // "0.1.0"

}  // namespace gputrain::app
