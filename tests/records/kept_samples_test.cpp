// Samples that a host makes once and keeps: in a file, for all its processes and the next start.
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "../../src/records/samples/sample_file.hpp"
#include "datasets/sample_of.hpp"
#include "gputrain/tokenizers/tokenizer.hpp"
#include "samples_fixture.hpp"
#include "support/byte_tokenizer.hpp"

namespace gputrain::records {
using namespace datasets;
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

MadeSamples made_samples() {
  MadeSamples made{.streams = std::vector<MadeSamples::Stream>(2), .columns = 1, .classes = {"a", "b"}};
  made.add({.streams = {{1, 2, 3}, {4}}, .second = 2}, {1});
  made.add_bad({.place = "f:2", .problem = "it is bad"}, {0});
  made.files = "1 file";
  made.unread = "id";
  made.warnings = {"one"};
  return made;
}

TEST_F(SamplesTest, AreTheSameInAFile) {
  const MadeSamples made = made_samples();
  write_samples(path("a.samples"), "key", made);
  const auto mapped = mapped_samples(path("a.samples"), "key");
  ASSERT_NE(mapped, nullptr);
  EXPECT_EQ(mapped->size(), 2);
  EXPECT_THAT(mapped->streams[0].of(0), ::testing::ElementsAre(1, 2, 3));
  EXPECT_THAT(mapped->streams[1].of(0), ::testing::ElementsAre(4));
  EXPECT_EQ(mapped->numbers[0], 1);
  EXPECT_EQ(mapped->seconds[0], 2);
  EXPECT_EQ(mapped->problems.at(1).what, "it is bad");
  EXPECT_EQ(mapped->warnings, made.warnings);
  EXPECT_EQ(mapped_samples(path("a.samples"), "another"), nullptr);
}

TEST_F(SamplesTest, AreNotTakenFromAFileThatIsCutOrLonger) {
  write_samples(path("a.samples"), "key", made_samples());
  std::string content(std::filesystem::file_size(path("a.samples")), '\0');
  std::ifstream(path("a.samples"), std::ios::binary).read(content.data(), std::ssize(content));
  for (size_t size = 0; size < content.size(); ++size) {
    write("b.samples", content.substr(0, size));
    EXPECT_EQ(mapped_samples(path("b.samples"), "key"), nullptr) << size;
  }
  write("b.samples", content + "x");
  EXPECT_EQ(mapped_samples(path("b.samples"), "key"), nullptr);
}

TEST_F(SamplesTest, AreMadeOnceByAllWhoWantThem) {
  std::atomic<int> makers = 0;
  std::vector<std::shared_ptr<const MadeSamples>> found(8);
  {
    std::vector<std::jthread> threads;
    for (auto& one : found)
      threads.emplace_back([&] {
        one = shared_samples(folder_ / "cache", "key", [&] {
          ++makers;
          return made_samples();
        });
      });
  }
  EXPECT_EQ(makers, 1);
  for (const auto& one : found) EXPECT_EQ(one->size(), 2);
}

/// A key as samples_key() makes it.
std::string key_of(const std::string& name) {
  std::string key;
  for (const char c : name) key += static_cast<char>('a' + c % 6);
  return key + std::string(32 - key.size(), '0');
}

/// A process that is killed while it makes samples leaves its lock and a part of its file.
TEST_F(SamplesTest, AreMadeByTheNextOneWhereTheirMakerIsKilled) {
  int told[2];
  ASSERT_EQ(::pipe(told), 0);
  const pid_t maker = ::fork();
  if (maker == 0) {
    shared_samples(folder_ / "cache", key_of("one"), [&]() -> MadeSamples {
      std::ofstream(folder_ / "cache" / (key_of("one") + ".samples.4711")) << "half";
      if (::write(told[1], "x", 1) != 1) ::_exit(1);
      while (true) ::pause();
    });
    ::_exit(1);
  }
  char byte = 0;
  ASSERT_EQ(::read(told[0], &byte, 1), 1);
  ::kill(maker, SIGKILL);
  ::waitpid(maker, nullptr, 0);
  using std::filesystem::file_time_type;
  std::filesystem::last_write_time(folder_ / "cache" / (key_of("one") + ".samples.4711"),
                                   file_time_type::clock::now() - std::chrono::hours(25));
  write("cache/4711.old", "a file of somebody else");
  std::filesystem::last_write_time(folder_ / "cache" / "4711.old",
                                   file_time_type::clock::now() - std::chrono::hours(99));
  EXPECT_EQ(shared_samples(folder_ / "cache", key_of("one"), made_samples)->size(), 2);
  std::vector<std::string> left;
  for (const auto& entry : std::filesystem::directory_iterator(folder_ / "cache"))
    left.push_back(entry.path().filename().string());
  EXPECT_THAT(left, ::testing::UnorderedElementsAre(key_of("one") + ".samples", "4711.old"));
}

TEST_F(SamplesTest, ThatWereUsedLongestAgoGoWhereAllAreTooMany) {
  using std::filesystem::file_time_type;
  write("cache/weights.bin", "a file of somebody else");
  const auto named = [&](int i) { return folder_ / "cache" / (key_of("sample" + std::to_string(i)) + ".samples"); };
  const auto find = [&](int i, int64_t most) {
    shared_samples(folder_ / "cache", key_of("sample" + std::to_string(i)), made_samples, most);
  };
  constexpr int kFiles = 6;  // as many keys as key_of() makes of a digit
  const auto hours_ago = [](int i) { return i == 0 ? 99 : 1 + i * 5 % kFiles; };
  for (int i = 0; i + 1 < kFiles; ++i) {
    find(i, 1 << 20);
    std::filesystem::last_write_time(named(i), file_time_type::clock::now() - std::chrono::hours(hours_ago(i)));
  }
  find(0, 1 << 20);  // is used now
  const auto size = static_cast<int64_t>(std::filesystem::file_size(named(0)));
  find(kFiles - 1, 4 * size + 4);
  std::vector<int> left;
  for (int i = 0; i < kFiles; ++i)
    if (std::filesystem::exists(named(i))) left.push_back(i);
  EXPECT_THAT(left, ::testing::ElementsAre(0, 3, 4, 5)) << "1 and 2 were used longest ago";
  find(2, 1);
  EXPECT_FALSE(std::filesystem::exists(named(0)));
  EXPECT_TRUE(std::filesystem::exists(named(2))) << "what is needed now stays";
  EXPECT_TRUE(std::filesystem::exists(path("cache/weights.bin")));
}

TEST_F(SamplesTest, StayInMemoryWhereTheFolderCannotBeWritten) {
  write("no_folder", "");
  EXPECT_EQ(shared_samples(folder_ / "no_folder" / "x", "key", made_samples)->size(), 2);
}

/// The next start of a job maps what the first one made, and warns as that did.
TEST_F(SamplesTest, OfMuchTextAreKeptForTheNextStart) {
  ::setenv("GPUTRAIN_SAMPLES", path("cache").c_str(), 1);
  std::string lines;
  for (int i = 0; lines.size() < (size_t{17} << 20); ++i)
    lines += R"({"text": ")" + std::string(static_cast<size_t>(50 + i % 100), static_cast<char>('a' + i % 26)) +
             R"(", "label": )" + std::to_string(i % 3) +
             R"(, "history": "x"})"
             "\n";
  write("a.jsonl", lines);
  data::DatasetSplits first, second;
  const std::string told = warning_of([&] { first = opened(Target::label, "a.jsonl"); });
  EXPECT_THAT(told, HasSubstr("history"));
  ASSERT_EQ(std::distance(std::filesystem::directory_iterator(path("cache")), {}), 1);
  const auto file = std::filesystem::directory_iterator(path("cache"))->path();
  const auto inode = [&] {
    struct stat status {};
    ::stat(file.c_str(), &status);
    return status.st_ino;
  };
  const auto before = inode();
  EXPECT_EQ(warning_of([&] { second = opened(Target::label, "a.jsonl"); }), told);
  EXPECT_EQ(inode(), before);
  ASSERT_EQ(first.train->size(), second.train->size());
  for (const int64_t i : {int64_t{0}, int64_t{77}, first.train->size() - 1})
    EXPECT_EQ(sample_of(*first.train, i), sample_of(*second.train, i));
  EXPECT_EQ(first.train->content_hash(), second.train->content_hash());
  EXPECT_EQ(first.train->describe(), second.train->describe());
  opened(Target::label, "a.jsonl", "", "tokenizer: bytes, max_length: 60");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(path("cache")), {}), 2);
  lines[10] = 'Z';  // the first letter of the first text
  write("a.jsonl", lines);
  EXPECT_EQ(sample_of(*opened(Target::label, "a.jsonl").train, 0)["tokens"][0], 90);
  ::unsetenv("GPUTRAIN_SAMPLES");
}

/// What else lies in the tokenizer's folder may be large, unreadable and of anybody.
TEST_F(SamplesTest, DependOnTheTokenizersFilesAlone) {
  write("a.jsonl", "");
  std::filesystem::resize_file(path("a.jsonl"), size_t{17} << 20);
  const auto key_with = [&](const std::string& source) {
    const auto loaded =
        config::load(config::schema_of<JobWithData>(),
                     {.file = "job.yaml",
                      .text = "data: {train: {path: " + path("a.jsonl") +
                              ", format: jsonl}, text: {tokenizer: published, tokenizer_path: " + path(source) + "}}"});
    const data::TextOptions& text = loaded.as<JobWithData>().data.text;
    const data::DatasetRequest request{.path = path("a.jsonl"), .model = {.field = kTokens}, .text = &text};
    const auto tokenizer = tokenizers::catalog().make(text.tokenizer, {});
    return samples_key(request, "jsonl", {path("a.jsonl")}, tokenizer.get(), 100);
  };
  const auto write_tokenizer = [&](const std::string& name, const std::string& special) {
    write(name, testing_support::byte_tokenizer({special}).dump());
  };
  write_tokenizer("model/bpe.json", "<a>");
  const std::string named = key_with("model/bpe.json");
  EXPECT_EQ(named.size(), 32U);
  write("model/tokens.bin", "of somebody else");
  EXPECT_EQ(key_with("model/bpe.json"), named);
  write("model/chat_template.jinja", "{{ messages }}");
  EXPECT_NE(key_with("model/bpe.json"), named);
  std::filesystem::remove(path("model/chat_template.jinja"));
  write_tokenizer("model/bpe.json", "<b>");
  EXPECT_NE(key_with("model/bpe.json"), named);
  write_tokenizer("model/tokenizer.json", "<a>");
  const std::string of_folder = key_with("model");
  write_tokenizer("model/tokenizer.json", "<b>");
  EXPECT_NE(key_with("model"), of_folder);
}

/// Many threads make texts, and any of them may meet what it warns of.
TEST_F(SamplesTest, OfConversationsAreKeptWithTheirWarnings) {
  ::setenv("GPUTRAIN_SAMPLES", path("cache").c_str(), 1);
  std::string lines;
  while (lines.size() < (size_t{17} << 20))
    lines += R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "rating": 5, "content": ")" +
             std::string(20000, 'b') +
             R"("}]})"
             "\n";
  write("a.jsonl", lines);
  const auto told = [&] {
    return warning_of([&] { opened(Target::next_token, "a.jsonl", "", "tokenizer: bytes, chat_template: chatml"); });
  };
  const std::string first = told();
  EXPECT_THAT(first, AllOf(HasSubstr("a key 'rating'"), HasSubstr("<|im_start|>")));
  ASSERT_EQ(std::distance(std::filesystem::directory_iterator(path("cache")), {}), 1);
  EXPECT_EQ(told(), first);
  ::unsetenv("GPUTRAIN_SAMPLES");
}

}  // namespace
}  // namespace gputrain::records
