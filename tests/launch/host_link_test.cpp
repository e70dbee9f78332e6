#include "../../src/launch/launcher/host_link.hpp"

#include <array>
#include <chrono>
#include <string>
#include <thread>

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

namespace gputrain::launch {
namespace {

/// A connected node and the messages it sends.
class HostLinkTest : public ::testing::Test {
 protected:
  HostLinkTest() {
    std::array<int, 2> ends{};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()), 0);
    node_ = ends[1];
    link_->connect();
    EXPECT_TRUE(link_->welcome(ends[0]));
  }
  ~HostLinkTest() override { ::close(node_); }

  void say(const std::string& line) const {
    const std::string text = line + "\n";
    EXPECT_EQ(::write(node_, text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }
  void say_ready() const {
    say(R"({"kind": "ready", "protocol": )" + std::to_string(kProtocol) +
        R"(, "version": "1.0", "ranks": 2, "address": "", "launcher_address": ""})");
  }

  std::unique_ptr<HostLink> link_ = HostLink::to_node(1, "1.0", "cpu");
  int node_ = -1;
};

TEST_F(HostLinkTest, IsReadyOnceTheNodeReports) {
  say_ready();
  link_->attend([](const nlohmann::json&) {});
  EXPECT_EQ(link_->state(), HostLink::State::ready);
  EXPECT_EQ(link_->ranks(), 2);
}

TEST_F(HostLinkTest, IgnoresMessagesAfterItIsDropped) {
  say_ready();
  for (int i = 0; i < 100; ++i) say(R"({"kind": "problem", "text": "no room on the disk there"})");
  int taken = 0;
  link_->attend([&](const nlohmann::json&) {
    ++taken;
    link_->drop("given up");
  });
  EXPECT_EQ(taken, 1);
  EXPECT_EQ(link_->state(), HostLink::State::away);
}

TEST_F(HostLinkTest, RefusesOtherVersionWithAnyMessage) {
  say(R"({"kind": "ready", "protocol": 1, "version": "0.9", "ranks": 2, "address": "", "launcher_address": ""})");
  for (int i = 0; i < 100; ++i) say(R"({"kind": "alive"})");
  link_->attend([](const nlohmann::json&) { ADD_FAILURE() << "it is no agent of ours"; });
  EXPECT_EQ(link_->loss(), "gputrain there is 0.9, here 1.0");
}

TEST_F(HostLinkTest, SurvivesAPauseOfItsOwnProcess) {
  say_ready();
  link_->attend([](const nlohmann::json&) {});
  std::this_thread::sleep_for(kLongestSilence + std::chrono::seconds(1));  // like on a machine that was suspended
  for (int i = 0; i < 2; ++i) link_->attend([](const nlohmann::json&) {});
  EXPECT_EQ(link_->state(), HostLink::State::ready) << link_->loss();
}

}  // namespace
}  // namespace gputrain::launch
