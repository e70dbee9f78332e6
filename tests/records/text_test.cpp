#include <sys/stat.h>

#include <algorithm>
#include <iterator>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include "datasets/opened.hpp"
#include "gputrain/data/batch.hpp"
#include "gputrain/datasets/file_list.hpp"
#include "gputrain/datasets/text_file.hpp"

namespace gputrain::records {
using namespace datasets;
namespace {

using namespace std::string_literals;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class TextTest : public FolderTest {
 protected:
  data::DatasetSplits open_text(const std::string& path, int64_t length, const std::string& more = "",
                                const std::string& source = "") const {
    return open("{train: {path: " + path + ", format: text" + source + "}" + more + "}", length);
  }
};

TEST_F(TextTest, KeepsNoMoreOfAFileThanItsText) {
  for (const size_t size :
       {size_t{0}, size_t{100}, size_t{65'535}, size_t{65'536}, size_t{65'537}, size_t{3'000'000}}) {
    std::string text;
    while (text.size() < size) text += static_cast<char>('a' + text.size() % 23);
    const std::string read = read_text(write("a.txt", text), kMostTextBytes);
    EXPECT_EQ(read, text);
    EXPECT_LE(read.capacity(), size + 16) << "thousands of small files are read at once";
  }
}

TEST_F(TextTest, NumbersCharactersByCodePoint) {
  const data::DatasetSplits datasets = open_text(write("a.txt", "hé 日a😀"), 5);
  EXPECT_EQ(datasets.train->layout().outputs, 6);  // ' ' a h é 日 😀
  const Sample sample = read(*datasets.train, 0);
  EXPECT_THAT(sample.tokens(), ElementsAre(2, 3, 0, 4, 1));
  EXPECT_THAT(sample.target, ElementsAre(3, 0, 4, 1, 5));
  EXPECT_EQ(datasets.train->tokenizer()->decode(sample.target), "é 日a😀");
  EXPECT_THAT(datasets.train->tokenizer()->encode("a é", "the prompt"), ElementsAre(1, 0, 3));
  EXPECT_THAT(error_of([&] { datasets.train->tokenizer()->encode("ab", "the prompt"); }),
              HasSubstr("'b' (U+0062) is not in the training data"));
  EXPECT_THAT(error_of([&] { datasets.train->tokenizer()->encode("\xc2\x9b", "the prompt"); }),
              HasSubstr("the character U+009B is not"))
      << "which begins a command to a terminal";
}

/// Token 1 for vowels, 0 for anything else.
class Vowels final : public tokenizers::Tokenizer {
 public:
  Vowels(const config::NoOptions&, const tokenizers::TokenizerRequest&) {}
  int64_t vocabulary_size() const override { return 2; }
  void tokenize(std::string_view text, const std::string&, const Take& take,
                std::vector<tokenizers::ByteRange>*) const override {
    for (const char c : text) {
      const int64_t token = std::string_view("aeiou").find(c) != std::string_view::npos ? 1 : 0;
      take({&token, 1});
    }
  }
  std::string decode(std::span<const int64_t> tokens) const override { return std::string(tokens.size(), '?'); }
};
const config::Registered<Vowels, config::NoOptions> registered_vowels{tokenizers::catalog(), "vowels", "for a test"};

TEST_F(TextTest, TakesATokenizerThatAFileRegisters) {
  const data::DatasetSplits datasets = open_text(write("a.txt", "banana"), 5, ", text: {tokenizer: vowels}");
  EXPECT_EQ(datasets.train->layout().outputs, 2);
  EXPECT_THAT(read(*datasets.train, 0).tokens(), ElementsAre(0, 1, 0, 1, 0));
  EXPECT_EQ(datasets.train->tokenizer()->decode(read(*datasets.train, 0).target), "?????");
}

TEST_F(TextTest, TakesATokenizerFromAFile) {
  const std::string text = write("a.txt", "abcabab");
  write("model/tokenizer.json", R"({"model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "c": 2, "ab": 3},
                                   "merges": ["a b"]}, "decoder": {"type": "Fuse"}})");
  const std::string tokenizer = ", text: {tokenizer: published, tokenizer_path: " + path("model") + "}";
  const data::DatasetSplits datasets = open_text(text, 3, tokenizer);
  EXPECT_EQ(datasets.train->layout().outputs, 4);
  EXPECT_THAT(read(*datasets.train, 0).tokens(), ElementsAre(3, 2, 3));
  EXPECT_EQ(datasets.train->tokenizer()->decode(read(*datasets.train, 0).tokens()), "abcab");
  EXPECT_THAT(error_of([&] { open_text(text, 3, ", text: {tokenizer: published, tokenizer_path: " + text + "}"); }),
              HasSubstr("a.txt"));
}

TEST_F(TextTest, ReadsBytesWhenAsked) {
  const data::DatasetSplits datasets =
      open_text(write("a.bin", std::string("\xff\0z", 3)), 2, ", text: {tokenizer: bytes}");
  EXPECT_EQ(datasets.train->layout().outputs, 256);
  EXPECT_THAT(read(*datasets.train, 0).tokens(), ElementsAre(255, 0));
  EXPECT_THAT(read(*datasets.train, 0).target, ElementsAre(0, 'z'));
  EXPECT_EQ(datasets.train->tokenizer()->decode(std::vector<int64_t>{104, 105}), "hi");
}

TEST_F(TextTest, CutsWindowsAndPadsTheLast) {
  const data::DatasetSplits datasets = open_text(write("a.txt", "abcdefgh"), 3);
  ASSERT_EQ(datasets.train->size(), 3);
  EXPECT_THAT(read(*datasets.train, 0).target, ElementsAre(1, 2, 3));
  EXPECT_THAT(read(*datasets.train, 1).target, ElementsAre(4, 5, 6));
  EXPECT_THAT(read(*datasets.train, 2).target, ElementsAre(7, kIgnoreIndex, kIgnoreIndex));
  EXPECT_THAT(read(*datasets.train, 2).tokens(), ElementsAre(6, 0, 0));
}

// For any offset, an epoch predicts every token but the first once, from the previous token.
TEST_F(TextTest, MovesWindowBordersCountingTokensOnce) {
  std::string text;
  for (int i = 0; i < 200; ++i) text += static_cast<char>(i);
  for (const int64_t length : {1, 7, 50, 199, 300}) {
    const data::DatasetSplits datasets = open_text(write("a.txt", text), length, ", text: {tokenizer: bytes}");
    std::set<int64_t> first_tokens;
    for (int64_t epoch = 0; epoch < 12; ++epoch) {
      std::vector<int64_t> counts(200);
      const data::ReadContext context{.seed = 3, .epoch = epoch, .augment = true};
      for (int64_t i = 0; i < datasets.train->size(); ++i) {
        const Sample sample = read(*datasets.train, i, context);
        for (size_t t = 0; t < sample.target.size(); ++t) {
          if (sample.target[t] == kIgnoreIndex) continue;
          ++counts[static_cast<size_t>(sample.target[t])];
          ASSERT_EQ(sample.tokens()[t] + 1, sample.target[t]);
        }
        if (i == 0) first_tokens.insert(sample.tokens()[0]);
      }
      EXPECT_EQ(counts[0], 0);
      EXPECT_EQ(std::count(counts.begin() + 1, counts.end(), 1), 199) << "length " << length << " epoch " << epoch;
    }
    EXPECT_GE(first_tokens.size(), length == 1 ? 1u : 4u);
  }
}

TEST_F(TextTest, HoldsOutTheEndOfTheText) {
  const data::DatasetSplits datasets = open_text(write("a.txt", "aaaaaaaaaaaaaaaaabcd"), 4, ", val: {split: 20%}");
  EXPECT_EQ(datasets.train->layout().outputs, 4) << "the vocabulary is that of the whole text";
  EXPECT_EQ(datasets.train->describe(), "16 tokens of 4, 1 file, 4 windows of 4");
  ASSERT_EQ(datasets.val->size(), 1);
  EXPECT_THAT(read(*datasets.val, 0).tokens(), ElementsAre(0, 1, 2, 0));
  EXPECT_THAT(read(*datasets.val, 0).target, ElementsAre(1, 2, 3, kIgnoreIndex));
}

TEST_F(TextTest, CountsOnlyFilesOfAPart) {
  write("all/a.txt", "aaaaaaaa");
  write("all/b.txt", "");
  write("all/c.txt", "aaaaaaaa");
  write("all/d.txt", "abcd");
  const data::DatasetSplits datasets = open_text(path("all"), 4, ", val: {split: 20%}");
  EXPECT_EQ(datasets.train->describe(), "16 tokens of 4, 2 files, 4 windows of 4");
  EXPECT_EQ(datasets.val->describe(), "4 tokens of 4, 1 file, 1 window of 4");
}

TEST_F(TextTest, WarnsOfFilesThatAreNotText) {
  const auto warning = [&] {
    ::testing::internal::CaptureStderr();
    open_text(path("all"), 4, ", text: {tokenizer: bytes}");
    return ::testing::internal::GetCapturedStderr();
  };
  write("all/a.txt", "abcd");
  EXPECT_EQ(warning(), "");
  write("all/b.png", std::string("\x89PNG\0", 5));
  EXPECT_THAT(warning(), HasSubstr("1 file is probably not text: " + path("all/b.png") + " has NUL bytes. Use"));
  write("all/a.txt", "\xff\xfe"s + "a\0"s);
  EXPECT_THAT(warning(), HasSubstr("2 files are probably not text: " + path("all/a.txt") + " is UTF-16 text, for ex"));
}

TEST_F(TextTest, ReadsGzipAsItsContent) {
  std::string text;
  for (int i = 0; i < 300'000; ++i) text += std::to_string(i % 7919);  // more than is unpacked at once
  const std::string plain = write("a.txt", text), packed = path("b.txt.gz");
  const gzFile file = ::gzopen(packed.c_str(), "wb");
  ::gzwrite(file, text.data(), static_cast<unsigned>(text.size()));
  ::gzclose(file);
  const data::DatasetSplits datasets = open_text(plain, 64, ", val: {path: " + packed + "}");
  ASSERT_EQ(datasets.val->describe(), datasets.train->describe());
  EXPECT_EQ(datasets.val->content_hash(), datasets.train->content_hash());
  EXPECT_NE(open_text(write("c.txt", text + " "), 64).train->content_hash(), datasets.train->content_hash());
  for (const int64_t i : {int64_t{0}, datasets.train->size() - 1})
    EXPECT_EQ(read(*datasets.val, i), read(*datasets.train, i));
}

TEST_F(TextTest, LeavesOutByteOrderMark) {
  for (const char* tokenizer : {"characters", "bytes"}) {
    const auto datasets = open_text(write("a.txt",
                                          "\xef\xbb\xbf"
                                          "abc"),
                                    2, ", text: {tokenizer: "s + tokenizer + "}");
    EXPECT_EQ(datasets.train->tokenizer()->decode(read(*datasets.train, 0).tokens()), "ab");
  }
  EXPECT_EQ(open_text(path("a.txt"), 2).train->layout().outputs, 3);
}

TEST_F(TextTest, NamesFilesOfAnotherKind) {
  EXPECT_THAT(error_of([&] { open_text(write("a", "version https://git-lfs.github.com/spec/v1\nsize 1"), 4); }),
              HasSubstr("a Git LFS pointer, not the file itself\n  try: git lfs pull"));
  EXPECT_THAT(error_of([&] { open_text(write("a", "\xff\xfe"s + "a\0"s), 4); }),
              AllOf(HasSubstr("invalid byte 0xFF; it is UTF-16 text"), HasSubstr("iconv -f UTF-16")));
  EXPECT_THAT(error_of([&] { open_text(write("a", "PK\x03\x04\xff"), 4); }), HasSubstr("it is a ZIP archive"));
}

TEST_F(TextTest, ReadsOtherFilesWithTrainingVocabulary) {
  const std::string train = write("train.txt", "xyz"), val = write("val.txt", "zy"), odd = write("odd.txt", "zy\nzq");
  EXPECT_THAT(read(*open_text(train, 1, ", val: {path: " + val + "}").val, 0).tokens(), ElementsAre(2));
  EXPECT_THAT(error_of([&] { open_text(train, 1, ", val: {path: " + odd + "}"); }),
              HasSubstr("odd.txt:1:3: the character U+000A is not in the training data"));
}

TEST_F(TextTest, SelectsFilesByPatternInOrder) {
  write("src/b.cpp", "2");
  write("src/a/z.cpp", "1");
  write("src/a.hpp", "h");
  write("build/gen.cpp", "g");
  write("sub/build/x.cpp", "x");
  write(".git/c.cpp", "c");
  write("notes.md", "m");
  const std::string source = ", include: ['*.cpp', 'src/*.hpp'], exclude: [build/]";
  const data::DatasetSplits datasets = open_text(folder_.string(), 2, "", source);
  EXPECT_EQ(datasets.train->tokenizer()->decode(read(*datasets.train, 0).tokens()) +
                datasets.train->tokenizer()->decode(std::vector{read(*datasets.train, 0).target[1]}),
            "h12");
  EXPECT_THAT(error_of([&] { open_text(folder_.string(), 2, "", ", include: ['*.rs']"); }),
              HasSubstr("no file in this folder matches"));
  EXPECT_THAT(error_of([&] { open_text(folder_.string(), 2, "", ", include: ['*.cpp', '*.rs', main.c]"); }),
              HasSubstr("no file is taken by 'main.c' of `include`"));
}

TEST_F(TextTest, WarnsOfFilesThatAreNoText) {
  EXPECT_THAT(warning_of([&] { open_text(write("a.txt", "<!DOCTYPE html><html>Quota exceeded"), 4); }),
              HasSubstr("a.txt is a web page"));
  EXPECT_EQ(warning_of([&] { open_text(write("a.html", "<!DOCTYPE html><html>"), 4); }), "");
  EXPECT_THAT(warning_of([&] { open_text(write("b.txt", "{\\rtf1 To be}"), 4); }),
              HasSubstr("b.txt is an RTF document"));
}

TEST_F(TextTest, WarnsOfPipes) {
  write("data/a.txt", "ab");
  ASSERT_EQ(::mkfifo(path("data/b.txt").c_str(), 0600), 0);
  EXPECT_THAT(warning_of([this] { open_text(path("data"), 1); }),
              HasSubstr("data: left out 1 file (pipe, socket or device): b.txt"));
}

TEST_F(TextTest, FollowsLinksWithoutLooping) {
  write("data/a.txt", "ab");
  std::filesystem::create_directory_symlink(folder_ / "data", folder_ / "data" / "again");
  std::filesystem::create_symlink(folder_ / "nowhere", folder_ / "data" / "broken.txt");
  EXPECT_THAT(warning_of([this] { EXPECT_EQ(open_text(path("data"), 1).train->size(), 1); }),
              HasSubstr("data: left out 1 link to nowhere: broken.txt"));
  EXPECT_EQ(warning_of([this] { open_text(path("data"), 1, "", ", include: [a.txt]"); }), "");
}

TEST_F(TextTest, LeavesOutFoldersOfRuns) {
  for (const char* name : {"a.txt", "runs/own/metrics.jsonl", "runs/older/job.resolved.yaml", "runs/older/train.log"})
    write(name, "ab");
  EXPECT_THAT(list_folder(folder_.string(), {}, {path("runs/own")}).files, ElementsAre("a.txt"));
  EXPECT_THAT(list_folder(path("runs/older"), {}).files, ElementsAre("job.resolved.yaml", "train.log"))
      << "asked for by name";
  const std::string job = "{train: {path: " + folder_.string() + ", format: text}}";
  EXPECT_EQ(open(job, 1, {path("runs/own")}).train->size(), 1);
}

TEST_F(TextTest, UsesFirstWantedNameOfALinkedFolder) {
  write("m/a.txt", "ab");
  for (const char* link : {"t", "c", "z", "n", "k", "e", "w"}) {
    std::filesystem::create_directory_symlink(folder_ / "m", folder_ / link);
  }
  const auto files = [&](const FileFilter& filter) { return list_folder(folder_.string(), filter).files; };
  EXPECT_THAT(files({}), ElementsAre("c/a.txt"));
  EXPECT_THAT(files({.include = {"m/**", "w/*.txt"}}), ElementsAre("m/a.txt"));
  EXPECT_THAT(files({.exclude = {"c/", "[d-k]/**"}}), ElementsAre("m/a.txt"));
}

TEST_F(TextTest, ReadsEveryFolderAPatternMatches) {
  for (const char* folder : {"", "a/", "b/", "ab/", "a/a/", "a/b/", "a/b/a/"}) {
    for (const char* file : {"a", "b", "ab"}) write("deep/" + std::string(folder) + file + ".", "x");
  }
  const std::string folder = path("deep");
  const std::vector<std::string> all = list_folder(folder, {}).files;
  ASSERT_EQ(all.size(), 21U);
  const std::vector<std::string> pieces{"", "a", "ab", "*", "**", "?", "[b]", "/", "a/", "a/b/", "**/", "/**", "."};
  const auto filtered = [&](const std::string& pattern, bool wanted) {
    std::vector<std::string> files;
    std::copy_if(all.begin(), all.end(), std::back_inserter(files),
                 [&](const std::string& file) { return matches_glob(pattern, file) == wanted; });
    return files;
  };
  for (const auto& one : pieces) {
    for (const auto& two : pieces) {
      for (const auto& three : pieces) {
        const std::string pattern = one + two + three;
        if (pattern.empty()) continue;
        ASSERT_EQ(list_folder(folder, {.include = {pattern}}).files, filtered(pattern, true)) << pattern;
        ASSERT_EQ(list_folder(folder, {.exclude = {pattern}}).files, filtered(pattern, false)) << pattern;
      }
    }
  }
}

TEST_F(TextTest, ReportsPlaceOfInvalidUtf8) {
  for (const char* bad :
       {"\xff", "\xc3(", "\xe2\x82", "\xc0\xaf", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xf8\x88\x80\x80\x80", "\x80"}) {
    const std::string file = write("bad.txt", "fine é\nand " + std::string(bad) + "x");
    EXPECT_THAT(error_of([&] { open_text(file, 1); }), HasSubstr("bad.txt:2:5: not UTF-8 text: invalid byte 0x"))
        << bad;
  }
}

TEST_F(TextTest, RefusesWhatIsNotText) {
  EXPECT_THAT(error_of([&] { open_text(write("empty.txt", ""), 4); }), HasSubstr("empty.txt: too few tokens: 0"));
  EXPECT_THAT(error_of([&] { open_text(write("one.txt", "a"), 4); }), HasSubstr("too few tokens: 1"));
  EXPECT_THAT(error_of([&] { open_text(write("ten.txt", "0123456789"), 4, ", val: {split: 10%}"); }),
              HasSubstr("data.val.split: 10% of the training data is less than one sample (too few tokens: 1"));
  EXPECT_THAT(error_of([&] { open_text(path("no/such.txt"), 4); }), HasSubstr("no such file or folder"));
  EXPECT_THAT(error_of([&] { open_text(path("*.nope"), 4); }), HasSubstr("no file matches this pattern"));
  EXPECT_THAT(error_of([&] { open_text("/dev/zero", 4); }), HasSubstr("not a regular file"));
  EXPECT_THAT(error_of([&] { open_text(write("a.txt", "abc"), 0); }, ExitCode::usage), HasSubstr("does not read text"));
}

TEST(Glob, MatchesCommonPatterns) {
  EXPECT_TRUE(matches_glob("*.cpp", "deep/in/a.cpp"));
  EXPECT_FALSE(matches_glob("*.cpp", "a.cpp.orig"));
  EXPECT_TRUE(matches_glob("src/*.cpp", "src/a.cpp"));
  EXPECT_FALSE(matches_glob("src/*.cpp", "src/x/a.cpp"));
  EXPECT_TRUE(matches_glob("src/**/*.cpp", "src/a.cpp"));
  EXPECT_TRUE(matches_glob("src/**/*.cpp", "src/x/y/a.cpp"));
  EXPECT_FALSE(matches_glob("src/**/a.cpp", "src/ba.cpp"));
  EXPECT_FALSE(matches_glob("src/**/*.cpp", "lib/src/a.cpp"));
  EXPECT_TRUE(matches_glob("**", "any/thing"));
  EXPECT_TRUE(matches_glob("build/", "a/build/b/c"));
  EXPECT_FALSE(matches_glob("build/", "a/build"));
  EXPECT_TRUE(matches_glob("a/build/", "a/build/x"));
  EXPECT_FALSE(matches_glob("a/build/", "b/a/build/x"));
  EXPECT_TRUE(matches_glob("[a-c]?[!x]", "b1y"));
  EXPECT_FALSE(matches_glob("[a-c]?[!x]", "d1y"));
  EXPECT_FALSE(matches_glob("[a-c]?[!x]", "b1x"));
  EXPECT_TRUE(matches_glob("a*b*c", "aXbYbZc"));
  EXPECT_FALSE(matches_glob("a*b*c", "aXbYbZ"));
  EXPECT_FALSE(matches_glob("[a", "a"));
  EXPECT_TRUE(matches_glob("a**c", "a/b/c"));
}

TEST(Glob, StaysFastWithManyStars) {
  std::string pattern;
  for (int i = 0; i < 100; ++i) pattern += "*a";
  EXPECT_FALSE(matches_glob(pattern + "b", std::string(2000, 'a')));
}

TEST(RealText, ReadsTinyShakespeare) {
  GPUTRAIN_NEED_DATA(file, "tinyshakespeare.txt");
  const data::DatasetSplits datasets = open("{train: {path: " + file + ", format: text}, val: {split: 10%}}", 256);
  EXPECT_EQ(datasets.train->layout().outputs, 65);
  EXPECT_EQ(datasets.train->describe(), "1,003,854 tokens of 65, 1 file, 3,922 windows of 256");  // as nanoGPT splits
  EXPECT_EQ(datasets.val->size(), (1115394 - 1003854 - 1 + 255) / 256);
  EXPECT_EQ(datasets.train->tokenizer()->decode(read(*datasets.train, 0).tokens()).substr(0, 14), "First Citizen:");
  EXPECT_EQ(datasets.val->tokenizer()->decode(read(*datasets.val, 0).tokens()).substr(0, 12), "?\n\nGREMIO:\nG");
}

}  // namespace
}  // namespace gputrain::records
