#include "gputrain/job/plugins.hpp"

#include <cxxabi.h>
#include <dlfcn.h>
#include <elf.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <sstream>
#include <string_view>

#include "gputrain/config/registrations.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/core/printable.hpp"
#include "gputrain/core/random.hpp"
#include "gputrain/job/job_start.hpp"
#include "gputrain/job/version.hpp"
#include "gputrain/plugin_stamp.hpp"

namespace gputrain::app {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kStampSection = ".gputrain_plugin";

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

/// Returns whether the file starts as a shared library does (ELF, 64 bits, little-endian).
bool is_shared_library(std::string_view file) noexcept {
  const auto header = header_at<Elf64_Ehdr>(file, 0);
  return header && std::memcmp(header->e_ident, ELFMAG, SELFMAG) == 0 && header->e_ident[EI_CLASS] == ELFCLASS64 &&
         header->e_ident[EI_DATA] == ELFDATA2LSB && header->e_type == ET_DYN;
}

/// Returns the content of the section `name` of such a file; empty: it has none, or is damaged.
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

std::vector<Plugin>& loaded() {
  static std::vector<Plugin> all;
  return all;
}

[[noreturn]] void refuse(const std::string& file, std::string what, std::string hint) {
  throw Error(ExitCode::usage, {.what = std::move(what), .where = file, .hint = std::move(hint)});
}

/// Identity of a file, to detect changes.
struct Identity {
  dev_t device;
  ino_t number;
  off_t size;
  timespec modified, changed;

  friend bool operator==(const Identity& a, const Identity& b) {
    const auto same = [](const timespec& x, const timespec& y) {
      return x.tv_sec == y.tv_sec && x.tv_nsec == y.tv_nsec;
    };
    return a.device == b.device && a.number == b.number && a.size == b.size && same(a.modified, b.modified) &&
           same(a.changed, b.changed);
  }
};

std::optional<Identity> identity_of(const std::string& file) {
  struct ::stat found {};
  if (::stat(file.c_str(), &found) != 0) return std::nullopt;
  return Identity{.device = found.st_dev,
                  .number = found.st_ino,
                  .size = found.st_size,
                  .modified = found.st_mtim,
                  .changed = found.st_ctim};
}

std::string whole_file(const std::string& file) {
  std::error_code unknown;
  if (fs::is_directory(file, unknown)) refuse(file, "is a folder, not a plug-in", "the path of a shared library in it");
  std::ifstream stream(file, std::ios::binary);
  if (!stream && !fs::exists(file, unknown))
    refuse(file, "no such file",
           "paths of a job are relative to the folder where gputrain is started; was the plug-in built?");
  std::string bytes{std::istreambuf_iterator<char>(stream), {}};
  if (!stream) refuse(file, "cannot be read", "its permissions");
  return bytes;
}

/// Line of a stamp: "LibTorch\t2.11.0".
struct StampLine {
  std::string name, value;
};

std::vector<StampLine> lines_of(const std::string& stamp) {
  std::vector<StampLine> lines;
  std::istringstream text(stamp.substr(0, stamp.find('\0')));
  for (StampLine line; std::getline(std::getline(text, line.name, '\t'), line.value);) lines.push_back(line);
  return lines;
}

/// Lists differences from the stamp of this program, "LibTorch 2.10.0, here 2.11.0; ..."; empty: none.
std::string differences_of(const std::string& stamp) {
  const auto theirs = lines_of(stamp);
  std::string text;
  for (const auto& [name, value] : lines_of(GPUTRAIN_PLUGIN_STAMP)) {
    std::string other = "none";
    for (const StampLine& line : theirs)
      if (line.name == name) other = printable(line.value);
    if (other != value) text += (text.empty() ? "" : "; ") + name + " " + other + ", here " + value;
  }
  return text;
}

void check_stamp(const std::string& file, const std::string& bytes) {
  const auto stamp = elf_section(bytes, kStampSection);
  if (!stamp)
    refuse(file, "is a shared library, but not a plug-in of gputrain: it has no section " + std::string(kStampSection),
           "build it by gputrain_plugin() of find_package(gputrain)");
  const std::string differences = differences_of(*stamp);
  if (!differences.empty())
    refuse(file, "was built for another gputrain: " + differences,
           "rebuild it against gputrain " + version() + " as it is installed here");
}

/// Demangles the symbols in the loader's message.
std::string readable(const std::string& words) {
  std::string text;
  for (size_t at = 0; at < words.size();) {
    const size_t end = std::min(words.find_first_of(" :,()", at), words.size());
    const std::string word = words.substr(at, end - at);
    const std::unique_ptr<char, void (*)(void*)> name(
        word.starts_with("_Z") ? abi::__cxa_demangle(word.c_str(), nullptr, nullptr, nullptr) : nullptr, std::free);
    text += name ? name.get() : word.c_str();
    if (end < words.size()) text += words[end];
    at = end + 1;
  }
  return text;
}

/// Loads the file, and returns the entries that it has registered.
std::vector<std::string> load_library(const std::string& file, const Plugin& plugin) {
  const config::RegistrationsOf registrations(plugin.name);
  if (::dlopen(plugin.path.c_str(), RTLD_NOW | RTLD_LOCAL) == nullptr) {
    std::string why = readable(::dlerror());
    if (why.starts_with(plugin.path + ": ")) why.erase(0, plugin.path.size() + 2);
    refuse(file, "cannot be loaded: " + why,
           why.starts_with("undefined symbol")
               ? "link it with what defines that, or add the missing source to gputrain_plugin()"
               : "`ldd " + file + "` shows the libraries that it needs");
  }
  if (!registrations.mistakes().empty())
    refuse(file, "registers what it must not: " + registrations.mistakes(), "change that there and rebuild it");
  if (registrations.entries().empty())
    refuse(file, "registers nothing", "a plug-in has a `config::Registered` line for each of its entries");
  return registrations.entries();
}

std::string build_of(const std::string& bytes) {
  std::array<char, 13> text{};
  std::snprintf(text.data(), text.size(), "%012llx",
                static_cast<unsigned long long>(stable_hash(bytes) & 0xFFFFFFFFFFFF));
  return text.data();
}

}  // namespace

void load_plugin(const std::string& file) {
  std::error_code unknown;
  const fs::path path = fs::canonical(file, unknown);
  const auto is_it = [&](const Plugin& one) { return one.path == path || fs::equivalent(one.path, path, unknown); };
  if (!unknown && std::ranges::any_of(loaded(), is_it)) return;
  const auto before = identity_of(file);
  const std::string bytes = whole_file(file);
  if (!is_shared_library(bytes)) refuse(file, "is no shared library", "a lib*.so that gputrain_plugin() has built");
  check_stamp(file, bytes);
  // The path is loaded, so that libraries beside it are found. A build that writes the file meanwhile is noticed.
  if (identity_of(file) != before) refuse(file, "changes while it is read", "start again when it is built");
  Plugin plugin{.path = path, .name = path.filename(), .build = build_of(bytes), .entries = {}};
  plugin.entries = load_library(file, plugin);
  loaded().push_back(std::move(plugin));
}

std::vector<std::string> plugins_of(const config::Request& job) {
  return config::load_despite_mistakes(config::schema_of<JobStart>(), job).as<JobStart>().plugins;
}

std::vector<config::Problem> load_plugins_of(const config::Request& job) {
  std::vector<config::Problem> mistakes;
  const config::Loaded start = config::load_despite_mistakes(config::schema_of<JobStart>(), job);
  const auto& files = start.as<JobStart>().plugins;
  for (size_t i = 0; i < files.size(); ++i) {
    try {
      load_plugin(files[i]);
    } catch (const Error& mistake) {
      const auto& [what, where, hint] = mistake.parts();
      const auto told = start.error("plugins[" + std::to_string(i) + "]", where + ": " + what, hint);
      mistakes.push_back(told.problems().front());
    }
  }
  return mistakes;
}

const std::vector<Plugin>& plugins() { return loaded(); }

std::string plugins_text(bool with_entries) {
  std::string text;
  for (const Plugin& plugin : loaded()) {
    text += (text.empty() ? "" : "; ") + plugin.name + " " + plugin.build;
    if (!with_entries) continue;
    for (const std::string& entry : plugin.entries) text += (&entry == plugin.entries.data() ? ": " : ", ") + entry;
  }
  return text;
}

}  // namespace gputrain::app
