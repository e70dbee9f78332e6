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

TEST(LineReader, ReturnsWholeLinesAndTheRestAtEnd) {
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

TEST(LineReader, LimitsWhatALineWithoutAnEndTakes) {
  const Pipe pipe;
  LineReader reader(pipe.ends[0], 1000);
  std::vector<size_t> sizes;
  const auto read = [&] { reader.read([&](std::string_view line) { sizes.push_back(line.size()); }); };
  pipe.write(std::string(600, 'x'));
  read();
  EXPECT_THAT(sizes, ElementsAre());
  pipe.write(std::string(600, 'x'));
  read();
  EXPECT_THAT(sizes, ElementsAre(1200));
  reader.set_longest_line(LineReader::kLongestLine);
  for (int i = 0; i < 3; ++i) {
    pipe.write(std::string(5000, 'y'));
    read();
  }
  pipe.write("\nz\n");
  read();
  EXPECT_THAT(sizes, ElementsAre(1200, 15'000, 1));
}

TEST(LineWriter, SurvivesFullDisk) {
  LineWriter writer(::open("/dev/full", O_WRONLY | O_CLOEXEC), 100);
  for (const char* line : {"lost", "lost as well"}) {
    EXPECT_TRUE(writer.write(line));
    EXPECT_LT(writer.wants(), 0);
    EXPECT_FALSE(writer.is_broken());
  }
}

TEST(LineWriter, DropsExcessAndKeepsOrder) {
  const Pipe pipe;
  ::fcntl(pipe.ends[1], F_SETFL, O_NONBLOCK);
  const std::string in_the_way(4096, 'x');
  size_t filled = 0;
  for (ssize_t count; (count = ::write(pipe.ends[1], in_the_way.data(), in_the_way.size())) > 0;)
    filled += static_cast<size_t>(count);
  LineWriter writer(pipe.ends[1], 100);
  EXPECT_TRUE(writer.write(std::string(60, 'a')));
  EXPECT_FALSE(writer.write(std::string(60, 'b')));
  writer.insist(std::string(60, 'c'));
  std::string all(filled, '\0');
  EXPECT_EQ(::read(pipe.ends[0], all.data(), all.size()), static_cast<ssize_t>(filled));
  EXPECT_EQ(writer.wants(), pipe.ends[1]);
  writer.flush();
  EXPECT_LT(writer.wants(), 0);
  all.resize(static_cast<size_t>(::read(pipe.ends[0], all.data(), all.size())));
  EXPECT_EQ(all, std::string(60, 'a') + "\n" + std::string(60, 'c') + "\n");
  ::close(pipe.ends[0]);
}

TEST(LineReader, ReturnsFromEndlessWriter) {
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
