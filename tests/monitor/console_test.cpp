#include "gputrain/monitor/console.hpp"

#include <gtest/gtest.h>

namespace gputrain::monitor {
namespace {

TEST(Console, PrintsPlainLinesWithoutTerminal) {
  testing::internal::CaptureStdout();
  {
    Console console(Console::Options{.enabled = true, .redraw = false, .colour = false});
    console.status("step 1/10");
    console.line("model", "gpt");
  }
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "model   gpt\n");
}

TEST(Console, ClearsStatusBeforeALine) {
  testing::internal::CaptureStdout();
  {
    Console console(Console::Options{.enabled = true, .redraw = true, .colour = false});
    console.status("step 1/10");
    console.line("eval", "x");
  }
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "\r\x1b[2Kstep 1/10\r\x1b[2Keval    x\n");
}

TEST(Console, ClearsStatusAtItsEnd) {
  testing::internal::CaptureStdout();
  Console(Console::Options{.enabled = true, .redraw = true}).status("step 1/10");
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "\r\x1b[2Kstep 1/10\r\x1b[2K");
}

TEST(Console, WrapsLinesAtTerminalWidth) {
  const std::string words = "weights 42.7 MiB  grads 42.6 MiB  optimizer 42.6 MiB  then activations  and more";
  const auto printed = [&](size_t columns) {
    testing::internal::CaptureStdout();
    Console(Console::Options{.enabled = true, .redraw = true, .columns = columns}).line("memory", words);
    return testing::internal::GetCapturedStdout();
  };
  EXPECT_EQ(printed(0), "memory  " + words + "\n");
  EXPECT_EQ(printed(80),
            "memory  weights 42.7 MiB  grads 42.6 MiB  optimizer 42.6 MiB  then activations\n"
            "        and more\n");
}

TEST(Console, PrintsNoControlSequences) {
  testing::internal::CaptureStdout();
  {
    Console console(Console::Options{.enabled = true, .redraw = false, .colour = false});
    console.block("a\x1b[2Jb\tc\r\nd\re \xe2\x82\xac \xff\xc2\x9b");
    console.line("data", "\x1b]0;x\x07");
  }
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "a?[2Jb\tc\nd?e \xe2\x82\xac ??\ndata    ?]0;x?\n");
}

TEST(Console, IsSilentOnOtherRanks) {
  testing::internal::CaptureStdout();
  Console console(Console::Options{.enabled = false, .redraw = true, .colour = true});
  console.line("model", "gpt");
  console.status("step");
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "");
}

}  // namespace
}  // namespace gputrain::monitor
