#include "gputrain/core/acceptor.hpp"

#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <string>

#include <gtest/gtest.h>

#include "support/sanitizers.hpp"

namespace gputrain {
namespace {

using namespace std::chrono_literals;

class AcceptorTest : public ::testing::Test {
 protected:
  AcceptorTest() {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    auto* generic = reinterpret_cast<sockaddr*>(&address);
    EXPECT_EQ(::bind(listener_, generic, length), 0);
    EXPECT_EQ(::listen(listener_, 8), 0);
    EXPECT_EQ(::getsockname(listener_, generic, &length), 0);
    EXPECT_EQ(::connect(visitor_.get(), generic, length), 0);
    EXPECT_EQ(::getrlimit(RLIMIT_NOFILE, &limit_), 0);
  }
  ~AcceptorTest() override { allow_files(limit_.rlim_cur); }

  static void allow_files(rlim_t count) {
    rlimit limit{};
    EXPECT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = count;
    EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
  }
  bool is_somebody_there(Clock::duration patience) const {
    Poll poll;
    acceptor_.add_to(poll);
    poll.wake_at(Clock::now() + patience);
    poll.wait();
    return poll.is_ready(listener_);
  }
  int next_within(Clock::duration patience) {
    const auto latest = Clock::now() + patience;
    for (int next = -1; Clock::now() < latest; is_somebody_there(latest - Clock::now())) {
      if ((next = acceptor_.next()) >= 0) return next;
    }
    return -1;
  }

  int listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  Descriptor visitor_{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  Acceptor acceptor_{listener_};
  rlimit limit_{};
};

TEST_F(AcceptorTest, AcceptsVisitor) {
  ASSERT_TRUE(is_somebody_there(testing::patience(5s)));
  const Descriptor taken(acceptor_.next());
  EXPECT_GE(taken.get(), 0);
  EXPECT_LT(acceptor_.next(), 0);
}

TEST_F(AcceptorTest, WaitsUntilDescriptorsAreFree) {
  if (testing::kIsSanitized) GTEST_SKIP() << "a sanitizer's own pipes need descriptors too";
  ::testing::internal::CaptureStderr();
  allow_files(static_cast<rlim_t>(visitor_.get()));  // no new descriptor
  EXPECT_LT(acceptor_.next(), 0);
  EXPECT_FALSE(is_somebody_there(50ms)) << "who waits for the next one does not wait";
  EXPECT_LT(next_within(1500ms), 0);
  allow_files(limit_.rlim_cur);
  const Descriptor taken(next_within(testing::patience(10s)));
  EXPECT_GE(taken.get(), 0);
  const std::string said = ::testing::internal::GetCapturedStderr();
  const size_t warning = said.find("Too many open files");
  EXPECT_NE(warning, std::string::npos) << said;
  EXPECT_EQ(warning, said.rfind("Too many open files")) << said;
}

}  // namespace
}  // namespace gputrain
