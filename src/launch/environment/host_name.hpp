// Text from outside that is to be a host name.
#pragma once

#include <string>
#include <string_view>

namespace gputrain::launch {

inline constexpr size_t kLongestHostName = 253;  // of the domain name system

/// Letters, digits, and "._-:%" (the last two for numeric IPv6 addresses), not beginning with what a program would take
/// for an option.
bool is_host_name(std::string_view text);

/// Text for a message: in single quotes, not too long, with nothing in it that a terminal would act on.
std::string in_quotes(std::string_view text);

}  // namespace gputrain::launch
