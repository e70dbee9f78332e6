#pragma once

#include <string>

namespace gputrain::app {

std::string version();  // of this program: "0.1.0"

}  // namespace gputrain::app
