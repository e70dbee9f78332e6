#include <elf.h>
#include <link.h>

#include <cstdint>
#include <cstring>
#include <string_view>

#include <fmt/format.h>

#include "gputrain/doctor/machine.hpp"

namespace gputrain::doctor {
namespace {

constexpr ElfW(Word) kBuildId = 3;  // NT_GNU_BUILD_ID

struct Search {
  ElfW(Addr) inside;  // an address in the wanted object
  std::string id = {};
};

bool contains(const dl_phdr_info& object, ElfW(Addr) address) {
  for (int i = 0; i < object.dlpi_phnum; ++i) {
    const auto& segment = object.dlpi_phdr[i];
    const ElfW(Addr) begin = object.dlpi_addr + segment.p_vaddr;
    if (segment.p_type == PT_LOAD && address >= begin && address - begin < segment.p_memsz) return true;
  }
  return false;
}

/// Returns the first 16 digits of the identity among these notes.
std::string id_in(std::string_view notes) {
  const auto padded = [](size_t size) { return (size + 3) / 4 * 4; };
  ElfW(Nhdr) note;
  while (notes.size() >= sizeof note) {
    std::memcpy(&note, notes.data(), sizeof note);
    const size_t at = sizeof note + padded(note.n_namesz), size = at + padded(note.n_descsz);
    if (size > notes.size()) return {};
    std::string id;
    for (const char byte : notes.substr(at, note.n_descsz)) id += fmt::format("{:02x}", static_cast<uint8_t>(byte));
    if (note.n_type == kBuildId && notes.substr(sizeof note).starts_with("GNU")) return id.substr(0, 16);
    notes.remove_prefix(size);
  }
  return {};
}

int look_into(dl_phdr_info* object, size_t /*size*/, void* data) {
  auto& search = *static_cast<Search*>(data);
  if (!contains(*object, search.inside)) return 0;
  for (int i = 0; i < object->dlpi_phnum && search.id.empty(); ++i) {
    const auto& segment = object->dlpi_phdr[i];
    if (segment.p_type != PT_NOTE) continue;
    search.id = id_in({reinterpret_cast<const char*>(object->dlpi_addr + segment.p_vaddr), segment.p_memsz});
  }
  return 1;
}

}  // namespace

std::string build_id() {
  Search search{.inside = reinterpret_cast<ElfW(Addr)>(&build_id)};
  ::dl_iterate_phdr(look_into, &search);
  return search.id;
}

}  // namespace gputrain::doctor
