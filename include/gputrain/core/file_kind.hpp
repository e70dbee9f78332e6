// The kind of a file by its first bytes, for messages about a file that is not what the user takes it for.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace gputrain {

enum class FileType {
  unknown,
  text,
  web_page,
  utf16_text,
  lfs_pointer,
  gzip,
  zstandard,
  compressed,
  zip,
  pickle,
  numpy,
  megatron_index,
  safetensors,
  other
};

struct FileKind {
  FileType type = FileType::unknown;
  std::string_view name;    // "a ZIP archive"; empty: unknown
  std::string_view remedy;  // what to try; may be empty

  bool is_text() const noexcept { return type == FileType::text || type == FileType::web_page; }
  /// Returns "; it is a ZIP archive", to end a message with; empty: unknown.
  std::string it_is() const;
};

/// The size of a file's beginning that file_kind() looks at.
inline constexpr size_t kFileKindBytes = 1024;

/// Returns the kind of a file that begins with these bytes. Text is UTF-8 without control characters.
FileKind file_kind(std::string_view begin);

}  // namespace gputrain
