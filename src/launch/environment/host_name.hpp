// Checks text from outside that should be a host name.
#pragma once

#include <string>
#include <string_view>

namespace gputrain::launch {

inline constexpr size_t kLongestHostName = 253;  // limit of DNS

/// Letters, digits, and "._-:%" (the last two for numeric IPv6 addresses); does not begin with '.' or with '-', which
/// programs take for an option.
bool is_host_name(std::string_view text);

/// Returns an IPv6 address without the brackets that URLs have around it; other text as it is.
std::string without_brackets(const std::string& address);

/// Returns text for a message: in single quotes, shortened, printable ASCII only.
std::string in_quotes(std::string_view text);

}  // namespace gputrain::launch
