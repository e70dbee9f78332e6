#include "gputrain/core/file_kind.hpp"

#include <string>

#include <gtest/gtest.h>

namespace gputrain {
namespace {

using namespace std::string_literals;

std::string name_of(const std::string& begin) { return std::string(file_kind(begin).name); }

TEST(FileKind, NamesArchivesAndWeights) {
  EXPECT_EQ(file_kind("\x1f\x8b\x08\0\0\0"s).type, FileType::gzip);
  EXPECT_EQ(name_of("\x28\xb5\x2f\xfd\x04"), "a Zstandard file");
  EXPECT_EQ(name_of("\xfd\x37zXZ\0\0"s), "an xz file");
  EXPECT_EQ(name_of("BZh91AY&SY\x01\x02"), "a bzip2 file");
  EXPECT_EQ(name_of("PK\x03\x04\x14"), "a ZIP archive (.zip, .npz, PyTorch's .pt)");
  EXPECT_EQ(name_of("a.txt"s + std::string(252, '\0') + "ustar"), "a tar archive");
  EXPECT_EQ(name_of("\x58\0\0\0\0\0\0\0{\"w\":{"s), "a safetensors file");
  EXPECT_EQ(name_of("\x80\x02\x8a\x0a\x6c\xfc\x9c"), "a Python pickle");
  EXPECT_EQ(name_of("GGUF\3\0\0\0"s), "a GGUF file of llama.cpp");
  EXPECT_EQ(file_kind("\x93NUMPY\x01\0v\0"s).type, FileType::numpy);
  EXPECT_EQ(file_kind("MMIDIDX\0\0\x01"s).type, FileType::megatron_index);
}

TEST(FileKind, NamesImagesOfOtherFormats) {
  EXPECT_EQ(name_of("II*\0\x08\0\0\0"s), "a TIFF image");
  EXPECT_EQ(name_of("MM\0*\0\0\0\x08"s), "a TIFF image");
  for (const std::string brand : {"heic", "avif", "mif1"})
    EXPECT_EQ(name_of("\0\0\0\x18"s + "ftyp" + brand), "an ISO media file, such as HEIC, AVIF or MP4");
}

TEST(FileKind, TellsTextFromPointersAndWebPages) {
  EXPECT_EQ(file_kind("To be, or not to be\n").type, FileType::text);
  EXPECT_EQ(file_kind("\xef\xbb\xbfh\xc3\xa9 \xe6\x97\xa5").type, FileType::text);
  EXPECT_EQ(file_kind(std::string(kFileKindBytes - 1, 'x') + "\xc3\xa9").type, FileType::text)
      << "cut off amid a character";
  EXPECT_EQ(file_kind("version https://git-lfs.github.com/spec/v1\noid sha256:0\n").type, FileType::lfs_pointer);
  EXPECT_EQ(name_of("{\\rtf1\\ansi To be}"), "an RTF document");
  EXPECT_EQ(file_kind("\n<!DOCTYPE html><html>").type, FileType::web_page);
  EXPECT_EQ(file_kind("\xff\xfe"
                      "a\0b\0"s)
                .type,
            FileType::utf16_text);
  EXPECT_EQ(file_kind("Notes on PK\x03\x04").type, FileType::unknown) << "a control character";
}

TEST(FileKind, SaysNothingOfRawNumbers) {
  EXPECT_EQ(file_kind("").type, FileType::unknown);
  EXPECT_EQ(file_kind("\x05\0\x07\0\xff\xff"s).it_is(), "");
  EXPECT_EQ(file_kind("\x1f\x8b\x09\0\x03\0"s).type, FileType::unknown) << "tokens 35,615 and 9";
  EXPECT_EQ(file_kind("\x93NUMPY").it_is(), "; it is a file of numpy.save");
}

}  // namespace
}  // namespace gputrain
