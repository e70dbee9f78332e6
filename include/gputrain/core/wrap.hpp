// Text broken into lines for a terminal.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace gputrain {

/// `text` broken at blanks into lines of at most `room`, where words allow; each but the first after `indent` blanks.
std::string wrapped(std::string_view text, size_t room, size_t indent);

}  // namespace gputrain
