#include "source.hpp"

#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <string_view>
#include <utility>

#include "gputrain/core/error.hpp"
#include "scalar.hpp"

namespace gputrain::config {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFileHint = "save it to a file: other ranks and later attempts read it too";

/// Returns why `path` cannot be a job file, judged by its file status; empty if it can.
std::string refusal(const fs::path& path, std::string& hint) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) {
    if (path == "-") {
      hint = kFileHint;
      return "a job is read from a file, not from stdin";
    }
    if (errno == ENOENT) {
      hint = "the current folder is " + printable(fs::current_path().string());
      return "no such file";
    }
    return std::string("cannot be opened: ") + std::strerror(errno);
  }
  if (S_ISDIR(status.st_mode)) {
    const fs::path resolved = path / "job.resolved.yaml";  // exists in a run folder
    hint = fs::exists(resolved) ? "this run's job is " + printable(resolved.string()) : "give the file inside it";
    return "is a folder, not a file";
  }
  if (!S_ISREG(status.st_mode)) {
    hint = kFileHint;
    return "is not a regular file (a device, pipe or socket)";
  }
  if (status.st_size > static_cast<off_t>(kMaxFileBytes)) {
    hint = "is it the job file?";
    return "is " + std::to_string(status.st_size) + " bytes; a job file has at most 4 MiB";
  }
  return {};
}

bool is_forbidden_control(unsigned char byte) {
  return (byte < 0x20 && byte != '\n' && byte != '\r' && byte != '\t') || byte == 0x7f;
}

/// Returns a hint for bytes that are not text: `of_file` for a file, another one for --set.
std::string hint_for_bytes(const Source& source, const std::string& of_file) {
  const bool is_set = source.kind == Source::Kind::command_line;
  return is_set ? "write it as text in UTF-8, without control characters" : of_file;
}

bool note_utf16(const std::shared_ptr<const Source>& source, Problems& problems) {
  const std::string_view text = source->text;
  if (!text.starts_with("\xff\xfe") && !text.starts_with("\xfe\xff")) return false;
  problems.add({source, 0, 0}, "is UTF-16 text", hint_for_bytes(*source, "save it as UTF-8"));
  return true;
}

}  // namespace

std::shared_ptr<const Source> read_source(const fs::path& path, const SourceLocation& asked_by, Problems& problems) {
  auto source = std::make_shared<Source>();
  source->name = path.string();
  std::string hint;
  errno = 0;
  std::string why = refusal(path, hint);
  if (why.empty()) {
    std::ifstream file(path, std::ios::binary);
    source->text.resize(kMaxFileBytes + 1);
    file.read(source->text.data(), static_cast<std::streamsize>(source->text.size()));
    source->text.resize(static_cast<size_t>(file.gcount()));
    if (source->text.size() > kMaxFileBytes) {
      why = "is over 4 MiB";
    } else if (!file.eof()) {
      why = "cannot be read: " + std::string(std::strerror(errno));
    }
  }
  source->text = without_byte_order_mark(std::move(source->text));
  if (why.empty()) return source;
  if (asked_by.source) {
    problems.add(asked_by, "the included file " + shown(source->name) + ": " + why,
                 "includes are relative to the file that names them");
  } else if (errno == EACCES) {
    throw Error(ExitCode::environment, {.what = why, .where = source->name});
  } else {
    problems.add({source, 0, 0}, why, hint);
  }
  return nullptr;
}

std::string without_byte_order_mark(std::string text) {
  constexpr std::string_view kMark = "\xef\xbb\xbf";
  if (text.starts_with(kMark)) text.erase(0, kMark.size());
  return text;
}

bool is_clean(const std::shared_ptr<const Source>& source, Problems& problems) {
  if (note_utf16(source, problems)) return false;
  const std::string_view text = source->text;
  size_t line_start = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t length = character_length(text, at);
    const auto byte = static_cast<unsigned char>(text[at]);
    if (length == 0) {
      problems.add(location_at(source, at), "a byte that is not UTF-8",
                   hint_for_bytes(*source, "save the file as UTF-8; is it the job file?"));
      return false;
    }
    if (is_forbidden_control(byte)) {
      problems.add(location_at(source, at), "a control character, byte " + std::to_string(byte),
                   hint_for_bytes(*source, "is it the job file?"));
      return false;
    }
    if (at - line_start > kMaxLineBytes) {
      problems.add(location_at(source, line_start), "a line of more than 64 KiB", "break it into several");
      return false;
    }
    at += length;
    if (byte == '\n') line_start = at;
  }
  return true;
}

SourceLocation location_at(const std::shared_ptr<const Source>& source, size_t offset) {
  SourceLocation location{source, 1, 1};
  for (size_t i = 0; i < offset && i < source->text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(source->text[i]);
    if (byte == '\n') {
      ++location.line;
      location.column = 1;
    } else if ((byte & 0xc0u) != 0x80u) {
      ++location.column;
    }
  }
  return location;
}

}  // namespace gputrain::config
