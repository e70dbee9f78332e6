// Malicious files are rejected at once, by explicit limits.
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "config/sample_job.hpp"
#include "gputrain/config/load.hpp"

namespace gputrain::config {
namespace {

namespace fs = std::filesystem;

/// The page of the error, or "accepted".
std::string refusal_of(const Request& request) {
  try {
    load(schema_of<SampleJob>(), request);
    return "accepted";
  } catch (const SpecError& error) {
    return error.what();
  }
}

std::string refusal_of_text(std::string text) { return refusal_of({.file = "job.yaml", .text = std::move(text)}); }

std::string repeated(const std::string& text, int times) {
  std::string all;
  for (int i = 0; i < times; ++i) all += text;
  return all;
}

class LoadLimits : public testing::Test {
 protected:
  void SetUp() override {
    const char* name = testing::UnitTest::GetInstance()->current_test_info()->name();
    folder_ = fs::temp_directory_path() / ("gputrain_config_" + std::to_string(::getpid()) + "_" + name);
    fs::create_directories(folder_);
    start_ = std::clock();
  }
  void TearDown() override {
    fs::remove_all(folder_);
    // CPU time of this process: far more than rejecting needs, far less than reading the whole file would take.
    EXPECT_LT(std::clock() - start_, 10 * CLOCKS_PER_SEC);
  }

  fs::path write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name, std::ios::binary) << text;
    return folder_ / name;
  }

  fs::path folder_;

 private:
  std::clock_t start_ = 0;
};

using testing::HasSubstr;

TEST_F(LoadLimits, RefusesOneGigabyteUnread) {
  const fs::path path = write("huge.yaml", "name: x\n");
  fs::resize_file(path, uintmax_t{1} << 30);  // sparse: uses no disk space
  EXPECT_THAT(refusal_of({.file = path}), HasSubstr("1073741824 bytes; a job file has at most 4 MiB"));
}

TEST_F(LoadLimits, RefusesWhatIsNoFile) {
  EXPECT_THAT(refusal_of({.file = folder_ / "absent.yaml"}), HasSubstr("no such file"));
  EXPECT_THAT(refusal_of({.file = folder_}), HasSubstr("is a folder"));
  EXPECT_THAT(refusal_of({.file = "-"}), HasSubstr("from a file, not from stdin"));
  EXPECT_THAT(refusal_of({.file = "/dev/zero"}), HasSubstr("not a regular file"));
  ASSERT_EQ(::mkfifo((folder_ / "pipe").c_str(), 0600), 0);
  EXPECT_THAT(refusal_of({.file = folder_ / "pipe"}), HasSubstr("not a regular file"));
  fs::create_symlink("loop", folder_ / "loop");
  EXPECT_THAT(refusal_of({.file = folder_ / "loop"}), HasSubstr("cannot be opened"));
}

TEST_F(LoadLimits, RefusesUnreadableFile) {
  if (::geteuid() == 0) GTEST_SKIP() << "root may read everything";
  const fs::path path = write("secret.yaml", "name: x\n");
  fs::permissions(path, fs::perms::none);
  EXPECT_THAT(refusal_of({.file = path}), HasSubstr("cannot be"));
}

TEST_F(LoadLimits, RefusesNestingTwentyThousandDeep) {
  EXPECT_THAT(refusal_of_text("name: " + repeated("[", 20000)), HasSubstr("is not closed"));
  EXPECT_THAT(refusal_of_text("name: " + repeated("[", 20000) + repeated("]", 20000)), HasSubstr("64 deep"));
  EXPECT_THAT(refusal_of_text(repeated("{a: ", 20000)), HasSubstr("more than 64 KiB"));
  EXPECT_THAT(refusal_of_text(repeated("{a: \n", 20000)), HasSubstr("is not closed"));
  EXPECT_THAT(refusal_of_text(repeated("- ", 20000)), HasSubstr("nested more than 64 deep"));
  EXPECT_THAT(refusal_of_text(repeated("? ", 20000)), testing::Not(HasSubstr("accepted")));
  std::string blocks;
  for (size_t i = 0; i < 1000; ++i) blocks += std::string(i, ' ') + "a:\n";
  EXPECT_THAT(refusal_of_text(blocks), HasSubstr("nested more than 64 deep"));
  EXPECT_THAT(refusal_of({.set = {repeated("a.", 20000) + "b=1"}}), HasSubstr("not of the form"));
}

TEST_F(LoadLimits, ReadsNestingUpToSixtyFour) {
  const std::string inner = repeated("[", 63) + repeated("]", 63);
  EXPECT_THAT(refusal_of_text("name: " + inner), HasSubstr("name must be text, not a list"));
  EXPECT_THAT(refusal_of_text("name: [" + inner + "]"), HasSubstr("nested more than 64 deep"));
}

TEST_F(LoadLimits, RefusesAliasesOfAliases) {
  std::string bomb = "vars:\n  a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 12; ++i) {
    const std::string name = "a" + std::to_string(i), inner = "*a" + std::to_string(i - 1);
    bomb += "  " + name + ": &" + name + " [" + repeated(inner + ", ", 9) + inner + "]\n";
  }
  EXPECT_THAT(refusal_of_text(bomb), HasSubstr("grows to more than 100,000 values"));
}

TEST_F(LoadLimits, RefusesManyAliasesOfALongList) {
  std::string bomb = "vars:\n  long: &long [" + repeated("x, ", 900) + "x]\n";
  for (int i = 0; i < 200; ++i) bomb += "  a" + std::to_string(i) + ": *long\n";
  EXPECT_THAT(refusal_of_text(bomb), HasSubstr("grows to more than 100,000 values"));
}

TEST_F(LoadLimits, RefusesManyAliasesOfLongTexts) {
  std::string bomb = "vars:\n  long: &long |\n";
  for (int i = 0; i < 32; ++i) bomb += "    " + std::string(60000, 'x') + "\n";
  for (int i = 0; i < 1000; ++i) bomb += "  a" + std::to_string(i) + ": *long\n";
  EXPECT_THAT(refusal_of_text(bomb), HasSubstr("16 MiB of text"));
}

TEST_F(LoadLimits, RefusesVariablesOfVariables) {
  std::string bomb = "vars:\n  v0: xxxxxxxxxxxxxxxxxxxx\n";
  for (int i = 1; i < 40; ++i) {
    bomb += "  v" + std::to_string(i) + ": \"" + repeated("${v" + std::to_string(i - 1) + "}", 10) + "\"\n";
  }
  EXPECT_THAT(refusal_of_text(bomb + "name: ${v39}\n"), HasSubstr("16 MiB of text"));
}

TEST_F(LoadLimits, RefusesIncludesOfIncludes) {
  for (int i = 0; i < 20; ++i) {
    const std::string next = "f" + std::to_string(i + 1) + ".yaml";
    write("f" + std::to_string(i) + ".yaml", "include: [" + next + ", " + next + "]\n");
  }
  EXPECT_THAT(refusal_of({.file = folder_ / "f0.yaml"}), HasSubstr("includes nested more than 16 deep"));
  for (int i = 0; i < 10; ++i) {
    const std::string next =
        i == 9 ? "" : "include: [g" + std::to_string(i + 1) + ".yaml, g" + std::to_string(i + 1) + ".yaml]";
    write("g" + std::to_string(i) + ".yaml", next + "\n");
  }
  EXPECT_THAT(refusal_of({.file = folder_ / "g0.yaml"}), HasSubstr("more than 64 files"));
}

TEST_F(LoadLimits, ShowsEveryMistakeUpToAHundred) {
  std::string text;
  for (int i = 0; i < 90000; ++i) text += "learning_rat" + std::to_string(i) + ": 1\n";
  EXPECT_THAT(refusal_of_text(text),
              testing::AllOf(HasSubstr("job.yaml:98:1"), testing::Not(HasSubstr("job.yaml:99:1")),
                             HasSubstr("no more are looked for")));
}

TEST_F(LoadLimits, RefusesBytesThatAreNotText) {
  EXPECT_THAT(refusal_of_text("name: caf\xe9\n"), HasSubstr("job.yaml:1:10: a byte that is not UTF-8"));
  EXPECT_THAT(refusal_of_text("name: \xc0\xaf\n"), HasSubstr("not UTF-8"));      // overlong
  EXPECT_THAT(refusal_of_text("name: \xed\xa0\x80\n"), HasSubstr("not UTF-8"));  // surrogate
  EXPECT_THAT(refusal_of_text("name: \xf5\x80\x80\x80\n"), HasSubstr("not UTF-8"));
  EXPECT_THAT(refusal_of_text("\xff\xfen\0a\0"), HasSubstr("UTF-16"));
  EXPECT_THAT(refusal_of_text(std::string("name: a\0b\n", 10)), HasSubstr("job.yaml:1:8: a control character, byte 0"));
  EXPECT_THAT(refusal_of_text("name: \x1b[2J\n"), HasSubstr("a control character, byte 27"));
  for (const std::string value : {"caf\xe9", "\x1b[2J"}) {
    EXPECT_THAT(refusal_of({.set = {"name=" + value}}),
                testing::AllOf(HasSubstr("= write it as text in UTF-8"), testing::Not(HasSubstr("file"))));
  }
}

TEST_F(LoadLimits, RefusesValueInsideItself) {
  EXPECT_THAT(refusal_of_text("vars: &a {b: *a}\n"), HasSubstr("inside the value that it names"));
}

TEST_F(LoadLimits, KeepsMessagesInUtf8) {
  const std::string long_name = "n: " + repeated("\u00fc", 100);
  for (const std::string& page :
       {refusal_of({.set = {"caf\xe9=1"}}), refusal_of({.set = {"caf\xe9"}}), refusal_of({.set = {"name=\xff"}}),
        refusal_of({.file = "/tmp/\xff.yaml"}), refusal_of({.text = long_name})}) {
    EXPECT_NE(page, "accepted");
    EXPECT_NO_THROW(static_cast<void>(nlohmann::json(page).dump())) << page;  // dump() throws on invalid UTF-8
  }
}

TEST_F(LoadLimits, KeepsControlCharactersFromTerminal) {
  const std::string page = refusal_of_text("\"a\\e[31m\\u009b1m\": \"\\e]0;x\\a\"\n");
  EXPECT_EQ(page.find('\x1b'), std::string::npos);
  EXPECT_EQ(page.find("\xc2\x9b"), std::string::npos);
}

}  // namespace
}  // namespace gputrain::config
