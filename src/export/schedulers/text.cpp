#include "text.hpp"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include <fmt/format.h>

#include "gputrain/core/printable.hpp"

namespace gputrain::app {
namespace {

constexpr size_t kNone = std::string_view::npos;

std::string with_values(std::string_view line, const TextValues& values) {
  std::string out;
  for (;;) {
    const size_t at = line.find('@'), end = at == kNone ? kNone : line.find('@', at + 1);
    if (end == kNone) return out.append(line);
    const auto found = values.find(std::string(line.substr(at + 1, end - at - 1)));
    const bool is_name = found != values.end();
    out.append(line.substr(0, is_name ? at : end));
    if (is_name) out += found->second;
    line.remove_prefix(is_name ? end + 1 : end);
  }
}

/// Appends the lines, each behind so many spaces.
void append_lines(std::string& out, std::string_view lines, size_t indent) {
  while (!lines.empty()) {
    const size_t end = std::min(lines.find('\n'), lines.size());
    const std::string_view line = lines.substr(0, end);
    if (!line.empty()) out.append(indent, ' ').append(line);
    out += '\n';
    lines.remove_prefix(std::min(end + 1, lines.size()));
  }
}

/// Returns the value that takes the whole line; null: the line has something else.
const std::string* block_of(std::string_view line, const TextValues& values) {
  if (line.size() < 3 || line.front() != '@' || line.back() != '@') return nullptr;
  const auto found = values.find(std::string(line.substr(1, line.size() - 2)));
  return found == values.end() ? nullptr : &found->second;
}

}  // namespace

std::string filled(std::string_view text, const TextValues& values) {
  std::string out;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    const size_t indent = std::min(line.find_first_not_of(' '), line.size());
    if (const std::string* block = block_of(line.substr(indent), values))
      append_lines(out, *block, indent);
    else
      out += with_values(line, values) + '\n';
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return out;
}

std::string yaml_text(const std::string& text) { return nlohmann::json(text).dump(); }

std::string yaml_list(const std::vector<std::string>& words) {
  std::string list;
  for (const std::string& word : words) list += (list.empty() ? "" : ", ") + yaml_text(word);
  return "[" + list + "]";
}

std::string with_double_dollars(const std::string& text) {
  std::string doubled;
  for (const char c : text) doubled += c == '$' ? std::string("$$") : std::string(1, c);
  return doubled;
}

std::string shell_words(const std::vector<std::string>& words) {
  constexpr std::string_view kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:,=+%";
  std::string line;
  for (const std::string& word : words) {
    if (!line.empty()) line += ' ';
    if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) {
      line += word;
      continue;
    }
    line += '\'';
    for (const char c : word) line += c == '\'' ? "'\\''" : std::string(1, c);
    line += '\'';
  }
  return line;
}

std::string comment(const std::string& text) { return "# " + printable(text) + "\n"; }

std::vector<std::string> launch_command(const JobFacts& facts, const std::string& file) {
  std::vector<std::string> words{"gputrain", "launch", "run", file};
  for (const std::string& setting : facts.set) words.insert(words.end(), {"--set", setting});
  return words;
}

std::string repeated(const std::string& command) {
  return "code=138   # saved, and asks to be started again\nwhile [ \"$code\" = 138 ]; do code=0; " + command +
         " || code=$?; done\nexit \"$code\"\n";
}

std::string path_in_container(const JobFacts& facts, const std::string& path) {
  const std::string folder = facts.volumes.empty() ? "/" : facts.volumes.front().path;
  std::string whole = (std::filesystem::path(folder) / path).lexically_normal().string();
  if (whole.size() > 1 && whole.ends_with('/')) whole.pop_back();
  return whole;
}

bool is_in_volume(const JobFacts& facts, const std::string& path) {
  const std::string whole = path_in_container(facts, path);
  return std::ranges::any_of(facts.volumes, [&](const Volume& volume) {
    return volume.path == "/" || whole == volume.path || whole.starts_with(volume.path + "/");
  });
}

std::string page_note(const JobFacts& facts) {
  if (!facts.metrics_port) return {};
  return comment(facts.serves_others
                     ? fmt::format("The page of the run, and /metrics: port {} of the first node.", *facts.metrics_port)
                     : fmt::format("The page of the run, at port {}, answers on its own host alone (log.metrics_host).",
                                   *facts.metrics_port));
}

std::string container_notes(const JobFacts& facts) {
  std::string notes;
  for (const auto& [key, path] : facts.paths)
    if (!is_in_volume(facts, path))
      notes += comment(fmt::format("Fill in: {} is {}, which is in no volume, so the image must have it.", key, path));
  return notes + page_note(facts);
}

}  // namespace gputrain::app
