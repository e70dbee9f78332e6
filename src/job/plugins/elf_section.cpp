#include "elf_section.hpp"

#include <elf.h>

#include <cstdint>
#include <cstring>

namespace gputrain::app {
namespace {

/// Returns `count` bytes from `offset`; empty: they are not all in the file.
std::optional<std::string_view> part_of(std::string_view file, uint64_t offset, uint64_t count) {
  if (offset > file.size() || count > file.size() - offset) return std::nullopt;
  return file.substr(offset, count);
}

template <class Header>
std::optional<Header> header_at(std::string_view file, uint64_t offset) {
  const auto bytes = part_of(file, offset, sizeof(Header));
  if (!bytes) return std::nullopt;
  Header header;
  std::memcpy(&header, bytes->data(), sizeof header);
  return header;
}

std::optional<std::string_view> content_of(std::string_view file, const Elf64_Shdr& section) {
  if (section.sh_type == SHT_NOBITS) return std::nullopt;
  return part_of(file, section.sh_offset, section.sh_size);
}

}  // namespace

bool is_shared_library(std::string_view file) noexcept {
  const auto header = header_at<Elf64_Ehdr>(file, 0);
  return header && std::memcmp(header->e_ident, ELFMAG, SELFMAG) == 0 && header->e_ident[EI_CLASS] == ELFCLASS64 &&
         header->e_ident[EI_DATA] == ELFDATA2LSB && header->e_type == ET_DYN;
}

std::optional<std::string> elf_section(std::string_view file, std::string_view name) {
  const auto header = header_at<Elf64_Ehdr>(file, 0);
  if (!header || header->e_shentsize != sizeof(Elf64_Shdr) || header->e_shoff > file.size()) return std::nullopt;
  const auto section_at = [&](uint64_t index) {
    return header_at<Elf64_Shdr>(file, header->e_shoff + index * sizeof(Elf64_Shdr));
  };
  const auto name_table = section_at(header->e_shstrndx);
  const auto names = name_table ? content_of(file, *name_table) : std::nullopt;
  if (!names) return std::nullopt;
  for (uint64_t index = 0; index < header->e_shnum; ++index) {
    const auto section = section_at(index);
    if (!section) return std::nullopt;
    if (section->sh_name >= names->size()) continue;
    const std::string_view found = names->substr(section->sh_name);
    if (found.substr(0, found.find('\0')) != name) continue;
    const auto content = content_of(file, *section);
    return content ? std::optional<std::string>(*content) : std::nullopt;
  }
  return std::nullopt;
}

}  // namespace gputrain::app
