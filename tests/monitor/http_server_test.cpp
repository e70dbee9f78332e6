#include "gputrain/monitor/http_server.hpp"

#include <filesystem>
#include <fstream>
#include <vector>

#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gputrain/core/error.hpp"

namespace gputrain::monitor {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

HttpAnswer echo(const HttpRequest& request) {
  if (request.path == "/broken") throw std::runtime_error("it is broken");
  return {.body = request.method + " " + request.path + " " + request.query + " " + request.body};
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

TEST(HttpServer, AnswersAtAPort) {
  const HttpServer server(listen_on("127.0.0.1", 0), echo);
  const HttpAnswer answer =
      ask("127.0.0.1", server.port(), {.method = "POST", .path = "/a", .query = "b=1", .body = "text"});
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.body, "POST /a b=1 text");
  EXPECT_EQ(ask("127.0.0.1", server.port(), {.method = "GET", .path = "/broken", .query = "", .body = ""}).status, 500);
}

TEST(HttpServer, RefusesWhatIsNoRequest) {
  const HttpServer server(listen_on("127.0.0.1", 0), echo);
  EXPECT_THAT(raw(server.port(), "nonsense\r\n\r\n"), HasSubstr("400 Bad Request"));
  EXPECT_THAT(raw(server.port(), "POST / HTTP/1.1\r\nContent-Length: 99999999\r\n\r\n"), HasSubstr("400"));
  EXPECT_THAT(raw(server.port(), "GET / HTTP/1.1\r\nContent-Length: x\r\n\r\n"), HasSubstr("400"));
  EXPECT_THAT(raw(server.port(), std::string(70'000, 'a')), HasSubstr("400"));
}

TEST(HttpServer, IsNotHeldUpByClientsThatSayNothing) {
  const HttpServer server(listen_on("127.0.0.1", 0), echo);
  std::vector<std::unique_ptr<Descriptor>> silent;
  for (int i = 0; i < 60; ++i) {
    silent.push_back(std::make_unique<Descriptor>(::socket(AF_INET, SOCK_STREAM, 0)));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(server.port()));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ASSERT_EQ(::connect(silent.back()->get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  }
  EXPECT_EQ(ask("127.0.0.1", server.port(), {.method = "GET", .path = "/a", .query = "", .body = ""}).status, 200);
}

TEST(HttpServer, AnswersAtASocketWithALongPath) {
  const fs::path folder = fs::path(testing::TempDir()) / ("s" + std::to_string(::getpid())) / std::string(120, 'x');
  fs::create_directories(folder);
  const fs::path path = folder / "ctl.sock";
  {
    const HttpServer server(listen_at(path), echo);
    EXPECT_EQ(ask(path, {.method = "GET", .path = "/a", .query = "", .body = ""}).body, "GET /a  ");
    struct stat status {};
    ASSERT_EQ(::stat(path.c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 0777, 0600U);
    EXPECT_THROW(listen_at(path), Error) << "it is in use";
  }
  EXPECT_THROW(ask(path, {.method = "GET", .path = "/a", .query = "", .body = ""}), Error);
  EXPECT_NO_THROW(listen_at(path)) << "nobody answers there any more";
  fs::remove_all(folder.parent_path());
}

}  // namespace
}  // namespace gputrain::monitor
