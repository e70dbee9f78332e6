#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include "gputrain/core/error.hpp"
#include "gputrain/generation/suite.hpp"

namespace gputrain::generation {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class ReadSuite : public testing::Test {
 protected:
  void TearDown() override { std::filesystem::remove(file_); }

  std::vector<SuiteItem> read(const std::string& text) const {
    std::ofstream(file_) << text;
    return read_suite(file_);
  }

  /// Of a file with this second line.
  std::string error_of(const std::string& line) const {
    try {
      read("{\"text\": \"a\"}\n" + line + "\n");
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::data) << line;
      EXPECT_EQ(error.parts().where, file_.string() + ":2");
      return error.what();
    }
    ADD_FAILURE() << "accepted: " << line;
    return {};
  }

  std::filesystem::path file_ =
      std::filesystem::temp_directory_path() / ("gputrain-suite-" + std::to_string(getpid()) + ".jsonl");
};

TEST_F(ReadSuite, TellsKindsOfLinesByTheirKeys) {
  const auto items = read(
      "{\"context\": \"\", \"choices\": [\"a\", \"b\"], \"answer\": 1, \"task\": \"x\"}\n\n"
      "{\"text\": \"a b\"}\n"
      "{\"prompt\": \"p\", \"answer\": \"\", \"stop\": []}\r\n"
      "{\"prompt\": \"p\", \"answer\": \"a\", \"max_new_tokens\": 3}\n");
  ASSERT_EQ(items.size(), 4U);
  EXPECT_EQ(items[0].task, "x");
  const auto& choices = std::get<Choices>(items[0].asked);
  EXPECT_THAT(choices.choices, ElementsAre("a", "b"));
  EXPECT_EQ(choices.answer, 1);
  EXPECT_EQ(choices.delimiter, " ");
  EXPECT_EQ(std::get<WholeText>(items[1].asked).text, "a b");
  EXPECT_EQ(items[1].line, 3);
  EXPECT_TRUE(std::get<Question>(items[2].asked).stop.empty());
  EXPECT_THAT(std::get<Question>(items[3].asked).stop, ElementsAre("\n\n"));
  EXPECT_EQ(std::get<Question>(items[3].asked).max_new_tokens, 3);
}

TEST_F(ReadSuite, RefusesWhatIsWrongWithFileAndLine) {
  EXPECT_THAT(error_of("[1]"), HasSubstr("not a JSON object"));
  EXPECT_THAT(error_of("{\"text\": "), HasSubstr("not a JSON object"));
  EXPECT_THAT(error_of("{\"text\": \"\xff\"}"), HasSubstr("not a JSON object"));
  EXPECT_THAT(error_of("{\"question\": \"t\"}"), HasSubstr("none of the keys"));
  EXPECT_THAT(error_of("{\"prompt\": \"t\"}"), HasSubstr("\"answer\" is missing"));
  EXPECT_THAT(error_of("{\"context\": \"t\", \"answer\": 0}"), HasSubstr("\"choices\" is missing"));
  EXPECT_THAT(error_of("{\"text\": \"t\", \"taks\": \"a\"}"), HasSubstr("did you mean 'task'?"));
  EXPECT_THAT(error_of("{\"text\": \"t\", \"prompt\": \"t\", \"answer\": \"s\"}"), HasSubstr("has no key \"text\""));
  EXPECT_THAT(error_of("{\"text\": 3}"), HasSubstr("\"text\" is not a text"));
  EXPECT_THAT(error_of("{\"text\": \"\"}"), HasSubstr("\"text\" is empty"));
  EXPECT_THAT(error_of("{\"context\": \"t\", \"choices\": [\"t\", \"s\"], \"answer\": 2}"),
              HasSubstr("\"answer\" is 2, expected a whole number from 0 to 1"));
  EXPECT_THAT(error_of("{\"context\": \"t\", \"choices\": [\"t\", \"\"], \"answer\": 0}"), HasSubstr("an empty text"));
  EXPECT_THAT(error_of("{\"context\": \"t\", \"choices\": [\"t\"], \"answer\": 0}"), HasSubstr("fewer than two"));
  EXPECT_THAT(error_of("{\"prompt\": \"t\", \"answer\": \"s\", \"max_new_tokens\": 0}"),
              HasSubstr("whole number from 1"));
}

}  // namespace
}  // namespace gputrain::generation
