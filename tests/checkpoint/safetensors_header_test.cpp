#include "gputrain/checkpoint/safetensors_header.hpp"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gputrain::checkpoint {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

/// A file with the given header and `data_bytes` bytes of data.
std::string file_with(const std::string& header, size_t data_bytes, int64_t claimed = -1) {
  const auto length = claimed < 0 ? header.size() : static_cast<uint64_t>(claimed);
  std::string file;
  for (int i = 0; i < 8; ++i) file += static_cast<char>(length >> (8 * i) & 0xff);
  return file + header + std::string(data_bytes, 'd');
}

std::string refusal_of(const std::string& file) {
  try {
    parse_safetensors(file, file.size(), "model.safetensors", ExitCode::data);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::data);
    EXPECT_EQ(error.parts().where, "model.safetensors");
    return error.parts().what;
  }
  return "accepted";
}

SafetensorsHeader parse(const std::string& file) { return parse_safetensors(file, file.size(), "f", ExitCode::data); }

const std::string kA = R"("a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]})";

TEST(SafetensorsHeader, ReadsTensorsInDataOrder) {
  const std::string header =
      R"({"__metadata__":{"format":"pt"},"b":{"data_offsets":[8,12],"shape":[],"dtype":"I32"},)" + kA +
      R"(,"e":{"dtype":"F16","shape":[0,3],"data_offsets":[8,8]}}  )";
  const SafetensorsHeader parsed = parse(file_with(header, 12));
  ASSERT_EQ(parsed.tensors.size(), 3u);
  EXPECT_EQ(parsed.tensors[0].name, "a");
  EXPECT_EQ(parsed.tensors[0].begin, 8 + header.size());
  EXPECT_EQ(parsed.tensors[1].name, "e");
  EXPECT_EQ(parsed.tensors[1].sizes, (std::vector<int64_t>{0, 3}));
  EXPECT_EQ(parsed.tensors[2].dtype, "I32");
  EXPECT_EQ(parsed.tensors[2].end, 8 + header.size() + 12);
  EXPECT_EQ(parsed.metadata.at("format"), "pt");
}

TEST(SafetensorsHeader, AcceptsFileWithoutTensors) { EXPECT_TRUE(parse(file_with("{}", 0)).tensors.empty()); }

struct Broken {
  std::string file;
  std::string told;
};

std::vector<Broken> broken_files() {
  const auto tensor = [](const std::string& dtype, const std::string& shape, const std::string& offsets) {
    return R"({"a":{"dtype":)" + dtype + R"(,"shape":)" + shape + R"(,"data_offsets":)" + offsets + "}}";
  };
  const std::string b = R"("b":{"dtype":"F32","shape":[1],"data_offsets":)";
  std::string dims = "[1";
  for (int i = 0; i < 64; ++i) dims += ",1";
  return {
      {std::string(7, '\1'), "only 7 bytes"},
      {file_with("{}", 0, 100'000'001), "over 100 MB"},
      {std::string(8, '\xff'), "over 100 MB"},
      {file_with("{}", 0, 3), "cut off inside the header"},
      {file_with("", 0), "not valid JSON"},
      {file_with("{" + kA, 8), "not valid JSON"},
      {file_with("{" + kA + "} x", 8), "not valid JSON"},
      {file_with("{\"\xff\":1}", 0), "not valid JSON in UTF-8"},
      {file_with("[]", 0), "a list in a wrong place"},
      {file_with("7", 0), "a number in a wrong place"},
      {file_with("{\"a\":7}", 0), "a number in a wrong place near tensor 'a'"},
      {file_with("{\"a\":null}", 0), "null in a wrong place"},
      {file_with("{" + kA + "}", 7), "cut off inside tensor 'a'"},
      {file_with("{" + kA + "}", 9), "1 bytes follow the last tensor"},
      {file_with("{}", 1), "1 bytes follow"},
      {file_with("{" + kA + "," + b + "[9,13]}}", 13), "hole before tensor 'b'"},
      {file_with("{" + b + "[1,5]}}", 5), "hole before tensor 'b'"},
      {file_with("{" + kA + "," + b + "[4,8]}}", 8), "overlaps"},
      {file_with("{" + kA + "," + kA + "}", 8), "'a' twice"},
      {file_with(R"({"__metadata__":{"k":"1","k":"2"}})", 0), "occurs twice"},
      {file_with(R"({"__metadata__":{"k":1}})", 0), "a number in a wrong place"},
      {file_with(R"({"__metadata__":{"k":{}}})", 0), "an object in a wrong place"},
      {file_with(R"({"__metadata__":{},"__metadata__":{}})", 0), "twice"},
      {file_with(R"({"a":{"dtype":"F32","dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 8), "has dtype twice"},
      {file_with(R"({"a":{"dtype":"F32","shape":[2]}})", 8), "lacks"},
      {file_with(R"({"a":{}})", 0), "lacks"},
      {file_with(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8],"x":1}})", 8), "unknown field 'x'"},
      {file_with(tensor("\"C64\"", "[1]", "[0,8]"), 8), "dtype 'C64', which is not supported"},
      {file_with(tensor("5", "[1]", "[0,8]"), 8), "a number in a wrong place"},
      {file_with(tensor("\"F32\"", "2", "[0,8]"), 8), "a number in a wrong place"},
      {file_with(tensor("\"F32\"", "[\"2\"]", "[0,8]"), 8), "a string in a wrong place"},
      {file_with(tensor("\"F32\"", "[2.0]", "[0,8]"), 8), "no 64-bit count"},
      {file_with(tensor("\"F32\"", "[-2]", "[0,8]"), 8), "a negative number"},
      {file_with(tensor("\"F32\"", "[18446744073709551616]", "[0,8]"), 8), "no 64-bit count"},
      {file_with(tensor("\"F32\"", "[9223372036854775808]", "[0,8]"), 8), "a huge size"},
      {file_with(tensor("\"F32\"", "[4294967296,4294967296]", "[0,0]"), 0), "too large"},
      {file_with(tensor("\"F32\"", "[4611686018427387906]", "[0,8]"), 8), "too large"},
      {file_with(tensor("\"F32\"", "[0,4294967296,4294967296]", "[0,0]"), 0), "too large"},
      {file_with(tensor("\"F32\"", "[2]", "[0,8,8]"), 8), "not [begin, end]"},
      {file_with(tensor("\"F32\"", "[2]", "[8]"), 8), "not [begin, end]"},
      {file_with(tensor("\"F32\"", "[2]", "[8,0]"), 8), "not [begin, end]"},
      {file_with(tensor("\"F32\"", "[3]", "[0,8]"), 8), "needs 12 bytes by its shape, data_offsets gives it 8"},
      {file_with(tensor("\"F32\"", "[2]", "[18446744073709551608,18446744073709551615]"), 8), "needs 8 bytes"},
      {file_with(tensor("\"F32\"", dims + "]", "[0,4]"), 4), "more than 64 dimensions"},
      {file_with(tensor("\"F32\"", "[[2]]", "[0,8]"), 8), "a list in a wrong place"},
      {file_with(std::string(1'000'000, '['), 0), "a list in a wrong place"},
  };
}

TEST(SafetensorsHeader, RefusesEveryBrokenFileAndSaysWhy) {
  for (const Broken& broken : broken_files()) {
    EXPECT_THAT(refusal_of(broken.file), HasSubstr(broken.told)) << broken.file.substr(0, 200);
  }
}

TEST(SafetensorsHeader, SaysWhatAnotherFileIs) {
  using std::string_literals::operator""s;
  const std::string pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 46830571\n";
  const auto told = [](const std::string& file) {
    try {
      parse(file);
    } catch (const Error& error) {
      return error.parts().what + "; " + error.parts().hint;
    }
    return "accepted"s;
  };
  EXPECT_THAT(told(pointer),
              AllOf(HasSubstr("not a safetensors file but a Git LFS pointer"), HasSubstr("git lfs pull")));
  EXPECT_EQ(front_bytes(pointer.substr(0, 8), pointer.size()), pointer.size()) << "enough to name it";
  EXPECT_THAT(told("\n<!DOCTYPE html><html>"), AllOf(HasSubstr("a web page"), HasSubstr("/resolve/")));
  EXPECT_THAT(told("Entry not found\nx"), HasSubstr("but a text: \"Entry not found\";"));
  EXPECT_THAT(told(""), AllOf(HasSubstr("an empty file"), HasSubstr("did not finish")));
  EXPECT_THAT(told(std::string(4096, '\0')), AllOf(HasSubstr("a file of zeros"), HasSubstr("did not finish")));
  EXPECT_THAT(told("\x1f\x8b\x08\0\0\0\0\0\0\x03rest"s), AllOf(HasSubstr("a gzip file"), HasSubstr("gunzip")));
  EXPECT_THAT(told("PK\3\4 and more bytes"), AllOf(HasSubstr("torch.save"), HasSubstr("save_file")));
  EXPECT_THAT(told("\x80\2\x8a\x0al\xfc\x9c"), AllOf(HasSubstr("a Python pickle"), HasSubstr("save_file")));
  EXPECT_THAT(told("GGUF\3\0\0\0"s), AllOf(HasSubstr("llama.cpp"), HasSubstr("the same weights as safetensors")));
}

// The length of a header is where other formats have their marks: 640 is "\x80\2", 60 is "<".
TEST(SafetensorsHeader, KnowsItselfWhenCutOff) {
  for (const int64_t length : {60, 640, 0x8b1f})
    EXPECT_THAT(refusal_of(file_with("{}", 0, length)), HasSubstr("cut off"));
}

TEST(SafetensorsHeader, PrintsNamesShortAndWithoutControls) {
  const std::string hostile = "\\u001b[31m" + std::string(500, 'n');
  const std::string told = refusal_of(file_with("{\"" + hostile + "\":{}}", 0));
  EXPECT_EQ(told.find('\x1b'), std::string::npos);
  EXPECT_LT(told.size(), 200u);
}

TEST(SafetensorsHeader, WritesAlignedHeaderThatReadsBack) {
  std::vector<StoredTensor> tensors{{.name = "half", .dtype = "F16", .sizes = {3}},
                                    {.name = "quote\"d\n", .dtype = "F64", .sizes = {1}},
                                    {.name = "b", .dtype = "F32", .sizes = {}},
                                    {.name = "a", .dtype = "F32", .sizes = {0, 7}}};
  const std::string header = layout_safetensors(tensors, {{"format", "pt"}});
  EXPECT_EQ(header.size() % 8, 0u);
  const SafetensorsHeader parsed = parse(header + std::string(18, 'd'));
  ASSERT_EQ(parsed.tensors.size(), 4u);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(parsed.tensors[i].name, tensors[i].name);
    EXPECT_EQ(parsed.tensors[i].begin, tensors[i].begin);
    EXPECT_EQ(parsed.tensors[i].begin % item_bytes(tensors[i].dtype), 0u);
  }
  EXPECT_EQ(parsed.tensors[0].name, "quote\"d\n");
  EXPECT_EQ(parsed.tensors[3].name, "half");
}

}  // namespace
}  // namespace gputrain::checkpoint
