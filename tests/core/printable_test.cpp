#include "gputrain/core/printable.hpp"

#include <gtest/gtest.h>

#include "gputrain/core/error.hpp"
#include "gputrain/core/log.hpp"

namespace gputrain {
namespace {

TEST(Printable, KeepsCharactersOfEveryLength) {
  for (const std::string text : {"a b~", "\xc3\xa9\xc2\xa0", "\xe2\x82\xac\xe0\xa0\x80\xed\x9f\xbf\xef\xbf\xbd",
                                 "\xf0\x9f\x98\x80\xf0\x90\x80\x80\xf4\x8f\xbf\xbf"}) {
    EXPECT_EQ(printable(text), text);
  }
}

// Text from a file must not move the terminal's cursor or change its title.
TEST(Printable, ReplacesControlCharacters) {
  EXPECT_EQ(printable("\x1b[31mred\x7f\x01\r\n"), "?[31mred????");
  EXPECT_EQ(printable("\xc2\x9b"
                      "31m\xc2\x80"),
            "?31m?");
  EXPECT_EQ(printable("two\nlines\r", "\n"), "two\nlines?");
}

TEST(Printable, WritesTextOfAPageWithoutTags) {
  EXPECT_EQ(html_text("<a href=\"x\">&\x01\xc3\xa9"), "&lt;a href=&quot;x&quot;&gt;&amp;?\xc3\xa9");
}

TEST(Printable, ReplacesInvalidUtf8) {
  EXPECT_EQ(printable("caf\xe9 au lait"), "caf? au lait");
  EXPECT_EQ(printable("\x80\xbf\xff"), "???");
  EXPECT_EQ(printable("\xc0\xaf\xc1\xbf"), "????") << "overlong";
  EXPECT_EQ(printable("\xe0\x9f\xbf\xf0\x8f\xbf\xbf"), "???????") << "overlong";
  EXPECT_EQ(printable("\xed\xa0\x80"), "???") << "half of a pair of UTF-16";
  EXPECT_EQ(printable("\xf4\x90\x80\x80\xf5\x80\x80\x80"), "????????") << "beyond the last";
  for (const std::string cut : {"\xc3", "\xe2\x82", "\xf0\x9f\x98"}) {
    EXPECT_EQ(printable(cut), std::string(cut.size(), '?'));
    EXPECT_EQ(printable(cut + "a"), std::string(cut.size(), '?') + "a");
  }
}

// Messages name files.
TEST(Error, ReplacesControlCharacters) {
  const Error error(ExitCode::data, {.what = "no\x1b[31m image\nat all", .where = "a\n\x1b[2J.png", .hint = "rm a\r"});
  EXPECT_STREQ(error.what(), "a??[2J.png: no?[31m image\nat all\n  try: rm a?");
  EXPECT_EQ(error.parts().where, "a??[2J.png");
}

TEST(Log, ReplacesControlCharacters) {
  ::testing::internal::CaptureStderr();
  log::warning("left out a\x1b[2J.png");
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "warning: left out a?[2J.png\n");
}

}  // namespace
}  // namespace gputrain
