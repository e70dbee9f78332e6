#include "gputrain/net/server.hpp"

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <thread>
#include <vector>

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gputrain/core/error.hpp"

namespace gputrain::net {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

Response echo(const Request& request) {
  if (request.path() == "/broken") throw std::runtime_error("it is broken");
  return {.body = request.method + " " + request.path() + " " + request.query() + " " + request.body};
}

/// Sends raw bytes to a port, and reads everything that comes.
std::string raw(int port, const std::string& bytes) {
  const Descriptor socket(::socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  EXPECT_EQ(::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL), std::ssize(bytes));
  std::string all;
  char buffer[4096];
  for (ssize_t count = 1; count > 0;) {
    count = ::recv(socket.get(), buffer, sizeof buffer, 0);
    if (count > 0) all.append(buffer, static_cast<size_t>(count));
  }
  return all;
}

TEST(Server, AnswersAtAPort) {
  const Server server(listen_on("127.0.0.1", 0), echo);
  const Response answer = ask("127.0.0.1", server.port(), {.method = "POST", .url = "/a?b=1", .body = "text"});
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.body, "POST /a b=1 text");
  EXPECT_EQ(ask("127.0.0.1", server.port(), {.url = "/broken"}).status, 500);
}

TEST(Server, RefusesWhatIsNoRequest) {
  const Server server(listen_on("127.0.0.1", 0), echo);
  EXPECT_THAT(raw(server.port(), "nonsense\r\n\r\n"), HasSubstr("400 Bad Request"));
  EXPECT_THAT(raw(server.port(), "POST / HTTP/1.1\r\nContent-Length: 99999999\r\n\r\n"), HasSubstr("400"));
  EXPECT_THAT(raw(server.port(), "GET / HTTP/1.1\r\nContent-Length: x\r\n\r\n"), HasSubstr("400"));
  EXPECT_THAT(raw(server.port(), std::string(70'000, 'a')), HasSubstr("400"));
}

TEST(Server, IsNotHeldUpByClientsThatSayNothing) {
  const Server server(listen_on("127.0.0.1", 0), echo);
  std::vector<std::unique_ptr<Descriptor>> silent;
  for (int i = 0; i < 60; ++i) {
    silent.push_back(std::make_unique<Descriptor>(::socket(AF_INET, SOCK_STREAM, 0)));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(server.port()));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ASSERT_EQ(::connect(silent.back()->get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  }
  EXPECT_EQ(ask("127.0.0.1", server.port(), {.url = "/a"}).status, 200);
}

/// Connections that send `bytes`, and then nothing more.
std::vector<std::unique_ptr<Descriptor>> connections(int port, int count, const std::string& bytes) {
  std::vector<std::unique_ptr<Descriptor>> all;
  for (int i = 0; i < count; ++i) {
    all.push_back(std::make_unique<Descriptor>(::socket(AF_INET, SOCK_STREAM, 0)));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(all.back()->get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(::send(all.back()->get(), bytes.data(), bytes.size(), MSG_NOSIGNAL), std::ssize(bytes));
  }
  return all;
}

TEST(Server, IsNotHeldUpByMoreClientsThanItHasRoomFor) {
  for (const char* bytes : {"", "G", "GET /a HTTP/1.1\r\n"}) {
    const Server server(listen_on("127.0.0.1", 0), echo);
    const auto silent = connections(server.port(), 200, bytes);
    EXPECT_EQ(ask("127.0.0.1", server.port(), {.url = "/a"}, std::chrono::seconds(9)).status, 200) << bytes;
  }
}

TEST(Server, AnswersHeadWithoutABody) {
  const Server server(listen_on("127.0.0.1", 0), echo);
  const std::string answer = raw(server.port(), "HEAD /abc HTTP/1.1\r\n\r\n");
  EXPECT_THAT(answer, HasSubstr("200 OK"));
  EXPECT_THAT(answer, HasSubstr("Content-Length: 11\r\n"));
  EXPECT_TRUE(answer.ends_with("\r\n\r\n")) << answer;
}

/// Asks a server that sends `part` again and again, with a pause after each, until nobody listens.
std::string failure_at_endless_server(const std::string& part, std::chrono::milliseconds pause) {
  const Listener listener = listen_on("127.0.0.1", 0);
  const std::jthread server([&] {
    const Descriptor visitor(::accept(listener.socket->get(), nullptr, nullptr));
    while (::send(visitor.get(), part.data(), part.size(), MSG_NOSIGNAL) > 0) std::this_thread::sleep_for(pause);
  });
  try {
    ask("127.0.0.1", listener.port, {.url = "/"}, std::chrono::seconds(1));
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Ask, EndsWithAServerThatNeverDoes) {
  using std::chrono::milliseconds;
  const std::string head = "HTTP/1.1 200 OK\r\n\r\n";
  EXPECT_THAT(failure_at_endless_server("H", milliseconds(20)), HasSubstr("no run answers"));
  EXPECT_THAT(failure_at_endless_server(head, milliseconds(20)), HasSubstr("no run answers"));
  EXPECT_THAT(failure_at_endless_server(head + std::string(1 << 20, 'H'), milliseconds(0)),
              HasSubstr("no run answers"));
}

TEST(LocalHost, IsLocalhostOrAnAddress) {
  for (const char* host :
       {"localhost", "localhost:80", "LOCALHOST", "a.localhost:80", "127.0.0.1", "10.0.0.4:9400", "[::1]", "[::1]:80"})
    EXPECT_TRUE(is_local_host(host)) << host;
  for (const char* host : {"", "attacker.example", "attacker.example:80", "127.0.0.1.attacker.example",
                           "localhost.example", "notlocalhost", "[attacker.example]", "127.0.0.1:80:attacker"})
    EXPECT_FALSE(is_local_host(host)) << host;
}

TEST(Server, IsFoundByItsFolder) {
  const fs::path folder = fs::path(::testing::TempDir()) / ("s" + std::to_string(::getpid())) / std::string(120, 'x');
  fs::create_directories(folder);
  const Request request{.url = "/a"};
  {
    const Server server(listen_for(folder), echo);
    EXPECT_EQ(ask(folder, request).body, "GET /a  ");
    EXPECT_EQ(ask(folder / ".." / folder.filename(), request).status, 200);
    EXPECT_THROW(listen_for(folder), Error) << "it is in use";
    EXPECT_TRUE(fs::is_empty(folder));
  }
  EXPECT_THROW(ask(folder, request), Error);
  EXPECT_NO_THROW(listen_for(folder)) << "nobody answers there any more";
  fs::remove_all(folder.parent_path());
}

struct SocketAddress {
  explicit SocketAddress(const fs::path& folder) {
    struct stat status {};
    ::stat(folder.c_str(), &status);
    const std::string name = "gputrain/0/" + std::to_string(status.st_dev) + "-" + std::to_string(status.st_ino);
    address.sun_family = AF_UNIX;
    name.copy(address.sun_path + 1, sizeof address.sun_path - 1);
    size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address); }
  sockaddr_un address{};
  socklen_t size = 0;
};

/// What a process of another user gets from the server for the folder. Call in a process of its own.
ssize_t received_by(uid_t user, const fs::path& folder) {
  const SocketAddress address(folder);
  const Descriptor socket(::socket(AF_UNIX, SOCK_STREAM, 0));
  if (::setuid(user) != 0) return -2;
  if (::connect(socket.get(), address.get(), address.size) != 0) return -3;
  constexpr std::string_view kAsked = "GET / HTTP/1.1\r\n\r\n";
  (void)!::send(socket.get(), kAsked.data(), kAsked.size(), MSG_NOSIGNAL);
  char buffer[64];
  return std::max<ssize_t>(0, ::recv(socket.get(), buffer, sizeof buffer, 0));
}

class OtherUser : public ::testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "only root can become another user";
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }
  const fs::path folder_ = fs::path(::testing::TempDir()) / ("u" + std::to_string(::getpid()));
};

TEST_F(OtherUser, IsNotAnswered) {
  const Server server(listen_for(folder_), echo);
  for (const uid_t user : {0U, 65534U}) {
    const pid_t child = ::fork();
    if (child == 0) ::_exit(received_by(user, folder_) > 0 ? 1 : 0);
    int status = -1;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(WEXITSTATUS(status), user == 0 ? 1 : 0);
  }
}

TEST_F(OtherUser, IsNotAsked) {
  const SocketAddress address(folder_);
  const Descriptor socket(::socket(AF_UNIX, SOCK_STREAM, 0));
  ASSERT_EQ(::bind(socket.get(), address.get(), address.size), 0);
  const pid_t child = ::fork();
  if (child == 0) ::_exit(::setuid(65534) == 0 ? ::listen(socket.get(), 1) : 1);  // the kernel notes who listens
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  try {
    ask(folder_, {.url = "/state"});
    FAIL() << "it asks another user's process";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("another user's"));
  }
}

}  // namespace
}  // namespace gputrain::net
