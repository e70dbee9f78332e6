#include <array>
#include <cstring>
#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "datasets/opened.hpp"
#include "gputrain/data/batch.hpp"

namespace gputrain::datasets {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

template <class Value>
std::string raw(const std::vector<Value>& values) {
  std::string bytes(values.size() * sizeof(Value), '\0');
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

template <class Token>
std::string llmc(int32_t magic, int32_t version, const std::vector<Token>& tokens) {
  std::vector<int32_t> header(256);
  header[0] = magic;
  header[1] = version;
  header[2] = static_cast<int32_t>(tokens.size());
  return raw(header) + raw(tokens);
}

std::string megatron(uint8_t type, const std::vector<int32_t>& lengths, int bytes) {
  std::vector<int64_t> places;
  int64_t at = 0;
  for (const int32_t length : lengths) {
    places.push_back(at);
    at += length * bytes;
  }
  std::vector<int64_t> documents(lengths.size() + 1);
  std::iota(documents.begin(), documents.end(), 0);
  return std::string("MMIDIDX\0\0", 9) + raw(std::vector<uint64_t>{1}) + raw(std::vector{type}) +
         raw(std::vector<uint64_t>{lengths.size(), documents.size()}) + raw(lengths) + raw(places) + raw(documents);
}

class TokensTest : public FolderTest {
 protected:
  data::DatasetSplits open_tokens(const std::string& path, int64_t length, const std::string& options = "",
                                  const std::string& more = "") const {
    return open("{train: {path: '" + path + "', format: tokens" + options + "}" + more + "}", length);
  }
  std::string refusal(const std::string& content, const std::string& options = "") const {
    return error_of([&] { open_tokens(write("bad.bin", content), 4, options); });
  }
};

TEST_F(TokensTest, ReadsLlmcFiles) {
  const auto gpt2 = open_tokens(write("a.bin", llmc<uint16_t>(20240520, 1, {5, 50256, 7})), 2);
  EXPECT_EQ(gpt2.train->layout().outputs, 50257);
  EXPECT_THAT(read(*gpt2.train, 0).tokens(), ElementsAre(5, 50256));
  EXPECT_THAT(read(*gpt2.train, 0).target, ElementsAre(50256, 7));
  const auto llama = open_tokens(write("b.bin", llmc<uint32_t>(20240801, 7, {128255, 1})), 1);
  EXPECT_EQ(llama.train->layout().outputs, 128256);
  EXPECT_THAT(read(*llama.train, 0).tokens(), ElementsAre(128255));
}

TEST_F(TokensTest, ReadsNanoGptFiles) {
  write("train.bin", raw<uint16_t>({3, 1, 4, 1}));
  write("val.bin", raw<uint16_t>({2, 2}));
  const auto datasets = open_tokens(folder_.string(), 3, "", ", val: {}");
  EXPECT_EQ(datasets.train->layout().outputs, 5) << "one more than the highest id";
  EXPECT_EQ(datasets.val->layout().outputs, 5);
  EXPECT_THAT(read(*datasets.train, 0).target, ElementsAre(1, 4, 1));
  const auto wide = open_tokens(write("wide.bin", raw<uint32_t>({70000, 2})), 1, ", dtype: uint32, vocab_size: 100000");
  EXPECT_THAT(read(*wide.train, 0).tokens(), ElementsAre(70000));
  EXPECT_EQ(wide.train->layout().outputs, 100000);
}

TEST_F(TokensTest, ReadsMegatronIndexedFiles) {
  write("m.idx", megatron(8, {3, 2}, 2));
  write("m.bin", raw<uint16_t>({1, 2, 3, 4, 5}));
  for (const char* name : {"m", "m.bin"})
    EXPECT_THAT(read(*open_tokens(path(name), 4).train, 0).target, ElementsAre(2, 3, 4, 5));
  write("l.idx", megatron(4, {2}, 4));
  write("l.bin", raw<int32_t>({100000, 7}));
  EXPECT_THAT(read(*open_tokens(path("l"), 1).train, 0).tokens(), ElementsAre(100000));
}

// Windows cross file borders: no token is lost at the end of a file.
TEST_F(TokensTest, JoinsFilesOfAPattern) {
  std::vector<uint16_t> tokens(50);
  std::iota(tokens.begin(), tokens.end(), uint16_t{0});
  write("t_002.bin", raw<uint16_t>({tokens.begin() + 7, tokens.begin() + 8}));
  write("t_001.bin", raw<uint16_t>({tokens.begin(), tokens.begin() + 7}));
  write("t_003.bin", raw<uint16_t>({tokens.begin() + 8, tokens.end()}));
  const auto datasets = open_tokens(path("t_*.bin"), 12);
  EXPECT_EQ(datasets.train->describe(), "50 tokens of 50, 3 files, 5 windows of 12");
  int64_t next = 0;
  for (int64_t i = 0; i < datasets.train->size(); ++i) {
    const Sample sample = read(*datasets.train, i);
    for (size_t t = 0; t < 12; ++t)
      if (sample.target[t] != kIgnoreIndex) {
        EXPECT_EQ(sample.tokens()[t], next);
        EXPECT_EQ(sample.target[t], ++next);
      }
  }
  EXPECT_EQ(next, 49);
}

TEST_F(TokensTest, KnowsItsContentWhereverItLies) {
  const auto hash = [this](const std::string& name, const std::vector<uint16_t>& tokens) {
    return open_tokens(write(name, raw(tokens)), 2, ", vocab_size: 99").train->content_hash();
  };
  const uint64_t before = hash("a.bin", {1, 2, 3, 4});
  EXPECT_EQ(hash("moved/b.bin", {1, 2, 3, 4}), before);
  EXPECT_NE(hash("a.bin", {4, 3, 2, 1}), before);
}

TEST_F(TokensTest, RefusesDamagedFiles) {
  const std::string good = llmc<uint16_t>(20240520, 1, {1, 2, 3});
  EXPECT_THAT(refusal(good.substr(0, 500)), HasSubstr("cut off inside llm.c's header"));
  EXPECT_THAT(refusal(good.substr(0, good.size() - 2)),
              HasSubstr("its header declares 3 tokens, but the file holds 2"));
  EXPECT_THAT(refusal(good + "xx"), HasSubstr("its header declares 3 tokens, but the file holds 4"));
  EXPECT_THAT(refusal(llmc<uint16_t>(20240520, 9, {1, 2})), HasSubstr("an llm.c token file of version 9"));
  EXPECT_THAT(refusal("abc"), HasSubstr("3 bytes are not a whole number of uint16 tokens"));
  EXPECT_THAT(refusal(""), HasSubstr("too few tokens: 0"));
}

TEST_F(TokensTest, RefusesOtherKindsOfFiles) {
  EXPECT_THAT(refusal("\x93NUMPY\x01" + std::string(121, ' ')),
              AllOf(HasSubstr("a file of numpy.save"), HasSubstr("dtype: uint32")));
  EXPECT_THAT(refusal(std::string("\x1f\x8b\x08\x00", 4) + std::string(124, 'x')), HasSubstr("a gzip file"));
  EXPECT_THAT(refusal("To be, or not to be, that is the question:\nWhether 'tis nobler in the mind to suffer..."),
              HasSubstr("text, not token ids\n  try: format: text"));
  EXPECT_THAT(refusal("PK\x03\x04" + std::string(124, '\0')), HasSubstr("a ZIP archive (.zip, .npz, PyTorch's .pt)"));
  EXPECT_THAT(refusal("version https://git-lfs.github.com/spec/v1\nsize 12345\n"), HasSubstr("try: git lfs pull"));
  EXPECT_THAT(refusal("<!DOCTYPE html>\n<html lang=en>"), HasSubstr("a web page, not token ids"));
  EXPECT_THAT(refusal("\x7f"
                      "ELF" +
                      std::string(124, '\1')),
              HasSubstr("a program or a library"));
  EXPECT_THAT(refusal(llmc<uint16_t>(20240326, 3, {1, 2})), HasSubstr("the weights of an llm.c model, not token ids"));
  const auto swapped = static_cast<int32_t>(__builtin_bswap32(20240520));
  EXPECT_THAT(refusal(llmc<uint16_t>(swapped, 1 << 24, {1, 2})), HasSubstr("with big-endian numbers"));
}

TEST_F(TokensTest, NamesMissingHalfOfMegatronPair) {
  write("m.idx", megatron(8, {2}, 2));
  EXPECT_THAT(error_of([this] { open_tokens(path("m.idx"), 2); }),
              HasSubstr("the index of a Megatron pair, not token ids\n  try: path: " + path("m.bin")));
  write("n.bin", raw<uint16_t>({1, 2, 3}));
  EXPECT_THAT(error_of([this] { open_tokens(path("n"), 2); }),
              HasSubstr("n.bin is there, but its index " + path("n.idx") + " is not"));
  EXPECT_EQ(open_tokens(path("n.bin"), 2).train->size(), 1);
}

TEST_F(TokensTest, WarnsOfUnlikelyNumbers) {
  std::vector<int64_t> tokens(100);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int64_t>(i * 1234 % 120'000);
  const auto warning = [this](const std::string& content, const std::string& options = "") {
    ::testing::internal::CaptureStderr();
    open_tokens(write("a.bin", content), 4, options);
    return ::testing::internal::GetCapturedStderr();
  };
  const std::string wide = raw(std::vector<uint32_t>(tokens.begin(), tokens.end()));
  EXPECT_THAT(warning(wide), AllOf(HasSubstr("a.bin looks like a file of 32-bit"), HasSubstr("set dtype: uint32")));
  EXPECT_THAT(warning(raw(tokens)), HasSubstr("a file of 64-bit numbers"));
  EXPECT_THAT(warning(raw(tokens), ", dtype: uint32"), HasSubstr("a file of 64-bit numbers"));
  EXPECT_EQ(warning(wide, ", dtype: uint32"), "");
  EXPECT_EQ(warning(raw(std::vector<uint16_t>(tokens.begin(), tokens.end()))), "");
  EXPECT_THAT(warning(raw(std::vector<uint16_t>(100, 0))), HasSubstr("a.bin begins with 100 tokens that are all 0"));
  const std::vector<float> floats(tokens.begin(), tokens.end());
  EXPECT_THAT(warning(raw(floats)), HasSubstr("a file of 32-bit floating-point numbers"));
  EXPECT_THAT(warning(raw(std::vector<uint16_t>{0x3c00, 0x4200, 0x5640, 0x7800, 0})), "") << "too few to tell";
  std::vector<uint16_t> halves(100);  // 1, 3, 100, 2048
  for (size_t i = 0; i < halves.size(); ++i) halves[i] = std::array<uint16_t, 4>{0x3c00, 0x4200, 0x5640, 0x6800}[i % 4];
  EXPECT_THAT(warning(raw(halves)), HasSubstr("a file of 16-bit floating-point numbers"));
  std::vector<uint8_t> bytes(200);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(i * 7 % 65);
  EXPECT_THAT(warning(raw(bytes)), AllOf(HasSubstr("a file of 8-bit numbers"), HasSubstr("astype(\"uint16\")")));
  EXPECT_EQ(warning(raw(std::vector<uint16_t>(bytes.begin(), bytes.end()))), "") << "characters";
  std::vector<uint16_t> big_endian(tokens.begin(), tokens.end());
  for (uint16_t& token : big_endian) token = static_cast<uint16_t>(token % 65 << 8);
  EXPECT_THAT(warning(raw(big_endian)), HasSubstr("as if its numbers were big-endian"));
}

TEST_F(TokensTest, RefusesNarrowNumbersReadAsWide) {
  EXPECT_THAT(refusal(raw<uint16_t>({5, 300, 7, 400}), ", dtype: uint32"),
              AllOf(HasSubstr("the highest token is 26,214,407, more than a vocabulary has"), HasSubstr("`dtype`")));
}

TEST_F(TokensTest, RefusesDamagedMegatronIndexes) {
  write("bad.bin", raw<uint16_t>({1, 2, 3, 4, 5}));
  const auto index_refusal = [this](const std::string& index) {
    write("bad.idx", index);
    return error_of([this] { open_tokens(path("bad.bin"), 2); });
  };
  const std::string good = megatron(8, {3, 2}, 2);
  EXPECT_THAT(index_refusal(good.substr(0, 20)), HasSubstr("too short for the header of a Megatron index"));
  EXPECT_THAT(index_refusal(std::string(good).replace(0, 1, "X")), HasSubstr("does not begin with MMIDIDX"));
  EXPECT_THAT(index_refusal(std::string(good).replace(9, 1, "\2")), HasSubstr("version 2 of a Megatron index"));
  EXPECT_THAT(index_refusal(megatron(7, {3, 2}, 2)), HasSubstr("tokens are of type 7"));
  EXPECT_THAT(index_refusal(std::string(good).replace(18, 8, "\xff\xff\xff\xff\xff\xff\xff\x7f")),
              HasSubstr("cut off: it declares"));
  EXPECT_THAT(index_refusal(megatron(8, {3, 3}, 2)), HasSubstr("its index declares 6 tokens, but the file holds 5"));
  EXPECT_THAT(index_refusal(megatron(8, {6, -1}, 2)), HasSubstr("sequence 1 has a negative length"));
  EXPECT_THAT(index_refusal(megatron(8, {3, 2}, 4)), HasSubstr("sequence 1 does not follow the one before it"));
}

TEST_F(TokensTest, RefusesTokensOutsideVocabulary) {
  const auto datasets = open_tokens(write("a.bin", raw<uint16_t>({1, 9, 3})), 2, ", vocab_size: 9");
  EXPECT_THAT(error_of([&] { read(*datasets.train, 0); }),
              HasSubstr("a.bin: token 9 near position 0 is outside the vocabulary of 9"));
}

TEST_F(TokensTest, RefusesUnknownEvaluationTokensAtOnce) {
  const std::string val = write("val.bin", raw<uint16_t>({1, 2, 9, 1}));
  const auto open_with = [&](const std::string& options) {
    open("{train: {path: " + write("train.bin", raw<uint16_t>({1, 4, 3})) + ", format: tokens" + options +
             "}, val: {path: " + val + "}}",
         2);
  };
  EXPECT_THAT(error_of([&] { open_with(""); }),
              HasSubstr("val.bin: token 9 near position 0 is outside the vocabulary of 5"));
  EXPECT_NO_THROW(open_with(", vocab_size: 10"));
}

TEST_F(TokensTest, AcceptsTokenThatLooksLikeGzip) {
  EXPECT_EQ(open_tokens(write("a.bin", raw<uint16_t>({35615, 9, 3, 4})), 2, ", vocab_size: 50257").train->size(), 2);
}

TEST_F(TokensTest, WarnsOfWindowBeyondTheData) {
  const auto warning = [this](int64_t length) {
    ::testing::internal::CaptureStderr();
    open_tokens(write("a.bin", raw(std::vector<uint16_t>{1, 2, 3, 4, 5})), length, "", ", val: {split: 50%}");
    return ::testing::internal::GetCapturedStderr();
  };
  EXPECT_EQ(warning(7), "");
  EXPECT_THAT(warning(131'072),
              HasSubstr("a sample has 131,072 tokens, but the training data only 5: the rest is "
                        "padding, which takes memory and time. Set data.text.max_length: 4, or less"));
}

TEST_F(TokensTest, NeedsLanguageModelAndFiles) {
  EXPECT_THAT(error_of([this] { open_tokens(path("none*.bin"), 2); }), HasSubstr("no file matches this pattern"));
  EXPECT_THAT(error_of([this] { open_tokens(write("a.bin", "abcd"), 0); }, ExitCode::usage),
              HasSubstr("does not read text"));
}

TEST_F(TokensTest, WarnsOfOtherPartsInAFolder) {
  write("d/train_0.bin", raw(std::vector<uint16_t>{1, 2, 3}));
  write("d/train_0.bin.sha256", "x");
  write("d/val_0.bin.zst", "x");
  const auto warning = [&] { return warning_of([&] { open_tokens(path("d"), 2); }); };
  EXPECT_EQ(warning(), "");
  write("d/train_1.bin.zst", "x");
  EXPECT_EQ(warning(), "warning: " + path("d") +
                           ": left out 1 file that may hold tokens but is not named .bin: "
                           "train_1.bin.zst\n");
  write("d/train_2.npy", "x");
  EXPECT_THAT(warning(), HasSubstr("left out 2 files"));
}

TEST_F(TokensTest, FindsFilesInOddlyNamedFolder) {
  write("data [v2]*/train_0.bin", raw(std::vector<uint16_t>{1, 2, 3}));
  EXPECT_EQ(open_tokens(path("data [v2]*"), 2).train->size(), 1);
}

}  // namespace
}  // namespace gputrain::datasets
