#include "gputrain/monitor/console.hpp"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <future>
#include <string>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gputrain/core/activity.hpp"

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

/// Returns what the console prints on a terminal of so many columns.
template <class Print>
std::string printed(size_t columns, bool colour, const Print& print) {
  testing::internal::CaptureStdout();
  {
    Console console(Console::Options{.enabled = true, .redraw = true, .colour = colour, .columns = columns});
    print(console);
  }
  return testing::internal::GetCapturedStdout();
}

TEST(Console, LeavesColumnsOutWhereTheTerminalIsNarrow) {
  const std::vector<Column> columns{{"20/3,600", 11}, {"loss 2.9860", 0, 1}, {"lr 1e-3", 0, 2}};
  const auto show = [&](Console& console) { console.show("step", columns); };
  EXPECT_EQ(printed(0, false, show), "step    20/3,600    loss 2.9860 lr 1e-3\n");
  EXPECT_EQ(printed(39, false, show), "step    20/3,600    loss 2.9860 lr 1e-3\n");
  EXPECT_EQ(printed(38, false, show), "step    20/3,600    loss 2.9860\n");
  EXPECT_EQ(printed(20, false, show), "step    20/3,600\n");
}

TEST(Console, ColoursLabelsAndColumnsOnlyWhereAsked) {
  const auto show = [](Console& console) { console.show("done", {{"a", 2}, {"b", 0, 0, "32"}}); };
  EXPECT_EQ(printed(80, true, show), "\x1b[1;32mdone   \x1b[0m a  \x1b[32mb\x1b[0m\n");
  EXPECT_EQ(printed(80, false, show), "done    a  b\n");
}

TEST(Console, FillsTheRestOfALiveLineWithABar) {
  const LiveLine line{
      .label = "step", .share = 0.5, .columns = {{" 50.0%"}, {"loss 2.9860", 12, 1}, {"eta 3m0s", 0, 2}}};
  const auto show = [&](Console& console) { console.status(line); };
  const std::string clear = "\r\x1b[2K";
  EXPECT_EQ(printed(60, false, show), clear + "step    ===========-----------  50.0% loss 2.9860  eta 3m0s" + clear);
  EXPECT_EQ(printed(38, false, show), clear + "step    ====-----  50.0% loss 2.9860" + clear);
  EXPECT_EQ(printed(200, false, show).size(), clear.size() * 2 + 8 + 30 + 1 + 28);
}

TEST(Console, BreaksACommandSoThatItCanBeCopied) {
  const std::string command = "gputrain run job.yaml --set train.max_steps=20 --output-dir runs/x";
  const auto show = [&](Console& console) { console.command("next", command, "goes on"); };
  EXPECT_EQ(printed(0, false, show), "next    " + command + "  # goes on\n");
  EXPECT_EQ(printed(60, false, show),
            "next    gputrain run job.yaml --set train.max_steps=20 \\\n"
            "        --output-dir runs/x\n"
            "        # goes on\n");
}

TEST(Console, ShowsWhatGoesOnForLong) {
  testing::internal::CaptureStdout();
  {
    Console console(Console::Options{.enabled = true, .redraw = true, .columns = 60});
    Activity activity("eval", "val data", 4);
    activity.add(1);
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!Activity::newest(1.3) && std::chrono::steady_clock::now() < end) std::this_thread::yield();
  }
  const std::string out = testing::internal::GetCapturedStdout();
  EXPECT_THAT(out, testing::HasSubstr("eval    ==="));
  EXPECT_THAT(out, testing::HasSubstr("-  25% val data 1."));
  EXPECT_THAT(out, testing::HasSubstr("eta 3."));
}

TEST(Console, LetsAWarningPassWhileAnotherThreadWaitsForAFullPipe) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(ends.data()), 0);
  const int most = ::fcntl(ends[1], F_SETPIPE_SZ, 4096), before = ::dup(STDOUT_FILENO);
  std::fflush(stdout);
  ::dup2(ends[1], STDOUT_FILENO);
  ::close(ends[1]);
  Console console(Console::Options{.enabled = true});
  auto writing = std::async(std::launch::async, [&] { console.show("data", std::string(50000, 'x')); });
  for (int waiting = 0; waiting < most; std::this_thread::yield()) ::ioctl(ends[0], FIONREAD, &waiting);
  auto clearing = std::async(std::launch::async, [&] { console.clear_status(); });
  const auto cleared = clearing.wait_for(std::chrono::seconds(20));
  const bool still_writes = writing.wait_for(std::chrono::seconds(0)) == std::future_status::timeout;
  std::array<char, 4096> read{};
  ::fcntl(ends[0], F_SETFL, O_NONBLOCK);
  while (writing.wait_for(std::chrono::seconds(0)) == std::future_status::timeout)
    if (::read(ends[0], read.data(), read.size()) < 0) std::this_thread::yield();
  ::dup2(before, STDOUT_FILENO);
  ::close(before);
  ::close(ends[0]);
  EXPECT_TRUE(still_writes);
  EXPECT_EQ(cleared, std::future_status::ready);
}

TEST(Activity, CountsItsParts) {
  EXPECT_FALSE(Activity::newest(0));
  Activity outer("data", "reading");
  {
    Activity inner("eval", "val data", 8);
    inner.add();
    inner.add(3);
    EXPECT_EQ(Activity::newest(0)->text, "val data");
    EXPECT_EQ(Activity::newest(0)->share, 0.5);
    EXPECT_FALSE(Activity::newest(1000));
  }
  EXPECT_EQ(Activity::newest(0)->label, "data");
  EXPECT_FALSE(Activity::newest(0)->share);
}

std::string short_line(const std::string& text, bool unicode = false) {
  testing::internal::CaptureStdout();
  Console(Console::Options{.enabled = true, .columns = 40, .unicode = unicode}).short_line("sample", text);
  return testing::internal::GetCapturedStdout();
}

TEST(Console, ShowsLineEndsOfAShortLineAndKeepsItsSpaces) {
  const std::string code = "if a:\r\n    b\n\tc  # \x1b[2J ";
  EXPECT_EQ(short_line(code), "sample  if a:\\n    b\\n\\tc  # ?[2J \n");
  EXPECT_EQ(short_line(code, /*unicode=*/true), "sample  if a:↵    b↵⇥c  # ?[2J \n");
}

TEST(Console, CutsAShortLineToTheTerminal) {
  const auto printed = [](const std::string& text) { return short_line(text, /*unicode=*/true); };
  const std::string fits(32, 'x');
  EXPECT_EQ(printed(fits), "sample  " + fits + "\n");
  EXPECT_EQ(printed(fits + "y"), "sample  " + std::string(29, 'x') + "...\n");
  std::string euros;
  for (int i = 0; i < 33; ++i) euros += "\xe2\x82\xac";
  EXPECT_EQ(printed(euros), "sample  " + euros.substr(0, 29 * size_t{3}) + "...\n");
  std::string lines, shown;
  for (int i = 0; i < 16; ++i) {
    lines += " \n";
    shown += " ↵";
  }
  EXPECT_EQ(printed(lines), "sample  " + shown + "\n");  // 32 characters
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
