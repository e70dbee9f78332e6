// Reads a section of a shared library without loading it.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace gputrain::app {

/// Whether the bytes of a file begin as those of a shared library (ELF, 64 bits, little-endian) do.
bool is_shared_library(std::string_view file) noexcept;

/// The content of the section `name` of such a file; empty: it has none, or is damaged.
std::optional<std::string> elf_section(std::string_view file, std::string_view name);

}  // namespace gputrain::app
