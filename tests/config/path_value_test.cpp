#include <optional>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gputrain/config/load.hpp"

namespace gputrain::config {
namespace {

using testing::AllOf;
using testing::HasSubstr;

struct Paths {
  std::string file;
  std::optional<std::string> folder;
  std::string word;
  static void describe(Description<Paths>& d) {
    d.key("file", &Paths::file, "a path").path();
    d.key("folder", &Paths::folder, "a path or null").path();
    d.key("word", &Paths::word, "no path");
  }
};

std::optional<std::string> home_of_me(const std::string& name) {
  return name == "HOME" ? std::optional<std::string>("/home/me/") : std::nullopt;
}

Paths paths_of(const std::string& text, const Environment& environment = home_of_me) {
  return load(schema_of<Paths>(), {.text = text, .environment = environment}).as<Paths>();
}

std::string path_refusal(const std::string& text, const Environment& environment = home_of_me) {
  try {
    return "accepted: " + paths_of(text, environment).file;
  } catch (const SpecError& error) {
    return error.what();
  }
}

TEST(PathValue, BeginsInHomeFolder) {
  EXPECT_EQ(paths_of("file: ~/x").file, "/home/me/x");
  EXPECT_EQ(paths_of("file: $HOME/a b/*.txt").file, "/home/me/a b/*.txt");
  EXPECT_EQ(paths_of("file: \"~\"").file, "/home/me");
  EXPECT_EQ(paths_of("file: $HOME").file, "/home/me");
  EXPECT_EQ(paths_of("folder: ~/x").folder, "/home/me/x");
  EXPECT_EQ(paths_of("vars: {there: ~/x}\nfile: ${there}/y").file, "/home/me/x/y");
  EXPECT_EQ(paths_of("file: ~/x", [](const std::string&) { return "/"; }).file, "/x");
}

TEST(PathValue, IsElseTakenAsWritten) {
  for (const std::string path : {"/~/x", "./~x", "a~", "a/~/b", "x$HOME", "/a/$x", "$", "$1", ""})
    EXPECT_EQ(paths_of("file: '" + path + "'").file, path);
  EXPECT_EQ(paths_of("word: ~/x").word, "~/x");
  EXPECT_EQ(paths_of("folder: ~").folder, std::nullopt);  // null in YAML
}

TEST(PathValue, RefusesWhatOnlyAShellReplaces) {
  EXPECT_THAT(
      path_refusal("file: ~other/x"),
      AllOf(HasSubstr("1:7: file: '~other' would be the home folder of another user"), HasSubstr("./~other/x")));
  EXPECT_THAT(path_refusal("file: $SCRATCH/x"),
              AllOf(HasSubstr("'$SCRATCH' is not replaced here"), HasSubstr("write ${env:SCRATCH}")));
  for (const char* home : {"", "/a\nb"})
    EXPECT_THAT(path_refusal("file: ~/x", [&](const std::string&) { return home; }), HasSubstr("HOME is not set"));
  EXPECT_THAT(path_refusal("file: ~/x", [](const std::string&) { return std::nullopt; }), HasSubstr("HOME is not set"));
}

TEST(PathValue, BeginsInHomeFolderInInclude) {
  EXPECT_THAT(path_refusal("include: ~/absent.yaml"), HasSubstr("the included file '/home/me/absent.yaml'"));
  EXPECT_THAT(path_refusal("include: ~other/x.yaml"), HasSubstr("include: '~other' would be"));
}

}  // namespace
}  // namespace gputrain::config
