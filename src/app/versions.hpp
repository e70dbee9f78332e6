// What this program is and what it was built with.
#pragma once

#include <string>

namespace gputrain::app {

std::string version();        // "0.1.0"
std::string versions_text();  // lines for `gputrain version`

}  // namespace gputrain::app
