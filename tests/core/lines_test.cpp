#include "gputrain/core/lines.hpp"

#include <array>
#include <string>
#include <vector>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

namespace gputrain {
namespace {

using ::testing::ElementsAre;

struct Pipe {
  Pipe() { EXPECT_EQ(::pipe(ends.data()), 0); }
  void write(const std::string& text) const {
    EXPECT_EQ(::write(ends[1], text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }
  std::array<int, 2> ends{};
};

TEST(LineReader, HandsOnWholeLinesAndAtTheEndWhatIsLeft) {
  const Pipe pipe;
  LineReader reader(pipe.ends[0]);
  std::vector<std::string> lines;
  const auto read = [&] { reader.read([&](std::string_view line) { lines.emplace_back(line); }); };
  pipe.write("one\r\ntw");
  read();
  EXPECT_THAT(lines, ElementsAre("one"));
  pipe.write("o\nthree");
  ::close(pipe.ends[1]);
  read();
  EXPECT_THAT(lines, ElementsAre("one", "two", "three"));
  EXPECT_TRUE(reader.is_at_end());
}

TEST(LineWriter, OutlivesAFullDisk) {
  LineWriter writer(::open("/dev/full", O_WRONLY | O_CLOEXEC), 100);
  for (const char* line : {"lost", "lost as well"}) {
    EXPECT_TRUE(writer.write(line));
    EXPECT_LT(writer.wants(), 0);
    EXPECT_FALSE(writer.is_broken());
  }
}

TEST(LineReader, ReturnsFromOneThatWritesAsFastAsItReads) {
  constexpr int kMostLines = 100'000;
  const Pipe pipe;
  LineReader reader(pipe.ends[0]);
  const std::string line = std::string(1023, 'x') + "\n";
  int lines = 0;
  pipe.write(line);
  reader.read([&](std::string_view) {
    if (++lines < kMostLines) pipe.write(line);
  });
  EXPECT_LT(lines, kMostLines);
  ::close(pipe.ends[1]);
}

}  // namespace
}  // namespace gputrain
