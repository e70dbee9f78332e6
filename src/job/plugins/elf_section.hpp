// Reader of a section in a shared library, without loading it.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace gputrain::app {

/// Returns whether the file starts as a shared library does (ELF, 64 bits, little-endian).
bool is_shared_library(std::string_view file) noexcept;

/// Returns the content of the section `name` of such a file; empty: it has none, or is damaged.
std::optional<std::string> elf_section(std::string_view file, std::string_view name);

}  // namespace gputrain::app
