// Hides passwords and tokens in text that is written down.
#pragma once

#include <string>
#include <string_view>

namespace gputrain {

/// Returns whether a variable of this name usually holds a secret: HF_TOKEN, PGPASS, GH_PAT; not PATH or AUTHOR.
bool is_secret_name(std::string_view name);

/// Replaces passwords and tokens in URLs: https://user:***@host/x?token=***.
std::string without_url_secrets(std::string_view text);

/// Hides secrets in a line of YAML or a command, also text after an upper-case name of a secret and ':' or '='. Puts
/// one '*' for each character, so that columns stay.
std::string with_starred_secrets(std::string_view line);

}  // namespace gputrain
