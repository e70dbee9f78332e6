// Reads the source of a template into its syntax tree.
#pragma once

#include <memory>
#include <string>

#include "../nodes.hpp"

namespace gputrain::chat {

/// Throws Error(data) that names line and what is wrong or not supported.
std::shared_ptr<const Program> parsed(const std::string& source, const std::string& name);

}  // namespace gputrain::chat
