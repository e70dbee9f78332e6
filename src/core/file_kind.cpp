#include "gputrain/core/file_kind.hpp"

#include <algorithm>

#include "gputrain/core/lower_case.hpp"
#include "gputrain/core/printable.hpp"

namespace gputrain {
namespace {

using namespace std::string_view_literals;

struct Magic {
  size_t at;
  std::string_view bytes;
  FileKind kind;
};

/// First bytes of files that are not text. Each has at least three, because raw numbers may begin with any two; only
/// the mark of UTF-16 is shorter.
constexpr Magic kMagics[] = {
    {0, "\x28\xb5\x2f\xfd", {FileType::zstandard, "a Zstandard file", "unpack it: zstd -d"}},
    {0, "\x50\x2a\x4d\x18", {FileType::zstandard, "a Zstandard file", "unpack it: zstd -d"}},  // written by pzstd
    {0, "\xfd\x37zXZ\0"sv, {FileType::compressed, "an xz file", "unpack it: unxz"}},
    {4, "1AY&SY", {FileType::compressed, "a bzip2 file", "unpack it: bunzip2"}},
    {0, "PK\x03\x04", {FileType::zip, "a ZIP archive (.zip, .npz, PyTorch's .pt)", "unpack it: unzip"}},
    {257, "ustar", {FileType::other, "a tar archive", "unpack it: tar xf"}},
    {0, "\x93NUMPY", {FileType::numpy, "a file of numpy.save", ""}},
    {0, "\x80\x02\x8a\x0a\x6c\xfc", {FileType::pickle, "a Python pickle", ""}},
    {0, "\x80\x04\x95", {FileType::pickle, "a Python pickle", ""}},
    {0, "\x80\x05\x95", {FileType::pickle, "a Python pickle", ""}},
    {0, "MMIDIDX\0\0"sv, {FileType::megatron_index, "the index of a Megatron pair", ""}},
    {0, "TNTIDX\0\0"sv, {FileType::megatron_index, "the index of an old Megatron pair", ""}},
    {0, "GGUF", {FileType::other, "a GGUF file of llama.cpp", ""}},
    {0, "\x89HDF\r\n\x1a\n", {FileType::other, "an HDF5 file", ""}},
    {0, "PAR1", {FileType::other, "a Parquet file", ""}},
    {0, "ARROW1", {FileType::other, "an Arrow file", ""}},
    {0, "\x89PNG\r\n\x1a\n", {FileType::other, "a PNG image", ""}},
    {0, "\xff\xd8\xff", {FileType::other, "a JPEG image", ""}},
    {0, "GIF8", {FileType::other, "a GIF image", ""}},
    {0, "II*\0"sv, {FileType::other, "a TIFF image", ""}},
    {0, "MM\0*"sv, {FileType::other, "a TIFF image", ""}},
    {4, "ftyp", {FileType::other, "an ISO media file, such as HEIC, AVIF or MP4", ""}},
    {0, "RIFF", {FileType::other, "a RIFF file, such as WebP or WAV", ""}},
    {0,
     "\x7f"
     "ELF",
     {FileType::other, "a program or a library", ""}},
    {0, "%PDF-", {FileType::other, "a PDF document", ""}},
    {0, "\xff\xfe", {FileType::utf16_text, "UTF-16 text", "convert it: iconv -f UTF-16 -t UTF-8"}},
    {0, "\xfe\xff", {FileType::utf16_text, "UTF-16 text", "convert it: iconv -f UTF-16 -t UTF-8"}},
};

/// Returns whether this is gzip: the method is deflate, and the three highest flags, which no version uses, are not
/// set.
bool is_gzip(std::string_view begin) {
  return begin.starts_with("\x1f\x8b\x08") && begin.size() > 3 && (static_cast<unsigned char>(begin[3]) & 0xE0) == 0;
}

/// Returns whether these bytes begin a safetensors file: a length of at most 16 MiB in eight bytes, then a JSON object.
bool is_safetensors(std::string_view begin) { return begin.size() > 9 && begin.substr(3, 7) == "\0\0\0\0\0{\""sv; }

/// Returns whether these bytes are text. The last character may be cut off.
bool is_text(std::string_view begin) {
  constexpr size_t kLongestCharacter = 4;
  for (size_t at = 0; at < begin.size();) {
    const auto byte = static_cast<unsigned char>(begin[at]);
    const bool is_control = (byte < ' ' && !(byte >= '\t' && byte <= '\r')) || byte == 0x7f;
    const size_t length = character_length(begin, at);
    if (is_control || (length == 0 && begin.size() - at >= kLongestCharacter)) return false;
    at += std::max<size_t>(length, 1);
  }
  return !begin.empty();
}

FileKind kind_of_text(std::string_view begin) {
  if (begin.starts_with("version https://git-lfs.github.com/spec/"))
    return {FileType::lfs_pointer, "a Git LFS pointer, not the file itself", "git lfs pull"};
  if (begin.starts_with("{\\rtf")) return {FileType::other, "an RTF document", "save it as plain text"};
  begin.remove_prefix(std::min(begin.find_first_not_of(" \t\r\n"), begin.size()));
  const std::string tag = lower_case(begin.substr(0, 14));
  if (tag.starts_with("<!doctype html") || tag.starts_with("<html"))
    return {FileType::web_page, "a web page", "download the file itself"};
  return {FileType::text, "text", ""};
}

}  // namespace

std::string FileKind::it_is() const { return name.empty() ? "" : "; it is " + std::string(name); }

FileKind file_kind(std::string_view begin) {
  begin = begin.substr(0, kFileKindBytes);
  if (is_text(begin)) return kind_of_text(begin);
  for (const Magic& magic : kMagics) {
    if (begin.size() > magic.at && begin.substr(magic.at).starts_with(magic.bytes)) return magic.kind;
  }
  if (is_gzip(begin)) return {FileType::gzip, "a gzip file", "unpack it: gunzip"};
  if (is_safetensors(begin)) return {FileType::safetensors, "a safetensors file", ""};
  return {};
}

}  // namespace gputrain
