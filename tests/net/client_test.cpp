#include "gputrain/net/client.hpp"

#include <chrono>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gputrain/core/error.hpp"
#include "gputrain/net/cancellation.hpp"
#include "gputrain/net/server.hpp"
#include "support/fake_cloud.hpp"

namespace gputrain::net {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using ::testing::StartsWith;

/// A network whose answers a test gives.
class Scripted final : public Transport {
 public:
  using Answer = std::function<Response(const Request&)>;
  Scripted(std::vector<Request>& seen, Answer answer) : seen_(seen), answer_(std::move(answer)) {}
  Response send(const Request& request) override {
    seen_.push_back(request);
    return answer_(request);
  }

 private:
  std::vector<Request>& seen_;
  Answer answer_;
};

class ScriptedClient : public ::testing::Test {
 protected:
  Client client(Scripted::Answer answer) { return Client(std::make_unique<Scripted>(seen_, std::move(answer))); }
  /// One where the first host sends on to `place`.
  Client sent_on_to(const std::string& place) {
    return client([place](const Request& request) {
      return request.url == place ? Response{} : Response{.status = 302, .location = place};
    });
  }
  std::vector<Request> seen_;
};

const Headers kSecret{{"Authorization", "Bearer hf_x"}};

TEST_F(ScriptedClient, SendsHeadersToTheHostThatIsAskedAlone) {
  EXPECT_EQ(sent_on_to("https://store.example/b").ask({.url = "https://hub.example/a", .headers = kSecret}).status,
            200);
  EXPECT_EQ(sent_on_to("https://HUB.example:443/b").ask({.url = "https://hub.example/a", .headers = kSecret}).status,
            200);
  ASSERT_THAT(seen_, SizeIs(4));
  EXPECT_EQ(seen_[0].headers.get("authorization"), "Bearer hf_x");
  EXPECT_THAT(seen_[1].headers, SizeIs(0));
  EXPECT_EQ(seen_[3].headers.get("authorization"), "Bearer hf_x");
}

TEST_F(ScriptedClient, SendsGetAloneToAnotherHost) {
  for (const char* method : {"HEAD", "POST", "PUT"}) {
    EXPECT_EQ(sent_on_to("https://b/").ask({.method = method, .url = "https://a/"}).status, 302) << method;
    EXPECT_EQ(sent_on_to("https://a/2").ask({.method = method, .url = "https://a/"}).status, 200) << method;
  }
}

TEST_F(ScriptedClient, RefusesRedirectsThatItMustNotFollow) {
  const auto refusal = [&](const std::string& url, const std::string& place) -> std::string {
    try {
      client([&](const Request&) { return Response{.status = 302, .location = place}; }).ask({.url = url});
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(refusal("https://a/", "http://a/"), HasSubstr("without encryption"));
  EXPECT_THAT(refusal("https://a/", "https://a/"), HasSubstr("redirects without end"));
}

TEST_F(ScriptedClient, AsksBusyServersAgain) {
  std::vector<std::string> troubles;
  const Retrying retrying{.first_pause_seconds = 0,
                          .on_trouble = [&](const std::string& text) { troubles.push_back(text); }};
  auto busy = client([&](const Request&) { return Response{.status = seen_.size() < 3 ? 503 : 200}; });
  EXPECT_EQ(busy.ask({.url = "https://a/"}, retrying).status, 200);
  EXPECT_THAT(troubles, ElementsAre("the server answers 503; try 2 of 5", "the server answers 503; try 3 of 5"));
  EXPECT_THROW(client([](const Request&) { return Response{.status = 429}; }).ask({.url = "https://a/"}), Interruption);
}

TEST(Retrying, CountsTriesWithoutProgressAlone) {
  uint64_t received = 0;
  int tries = 0;
  const Retrying retrying{.first_pause_seconds = 0, .hint = "ask somebody"};
  const auto broken = [&] {
    if (++tries <= 10) ++received;
    throw Interruption("it breaks");
  };
  try {
    retrying.run("https://a/", broken, [&] { return received; });
    FAIL() << "it never succeeds";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("it breaks (tried 5 times)"), HasSubstr("ask somebody")));
  }
  EXPECT_EQ(tries, 10 + Retrying::kTries - 1);
}

class Curl : public ::testing::Test {
 protected:
  std::string url(const Server& server) const { return "http://127.0.0.1:" + std::to_string(server.port()); }
  Request to(const std::string& url) const { return {.url = url, .may_use_proxy = false}; }
  std::unique_ptr<Transport> curl_ = curl_transport();
};

TEST_F(Curl, SendsWhatIsAskedFor) {
  Request seen;
  const Server server(listen_on("127.0.0.1", 0), [&](const Request& request) {
    seen = request;
    return Response{.status = 302, .headers = {{"Location", "/b"}, {"X-Here", " yes "}}, .body = "text"};
  });
  Request request = to(url(server) + "/a?b=c");
  request.headers = {{"X-Token-TTL-seconds", "21600"}};
  request.from = 5;
  const Response response = curl_->send(request);
  EXPECT_EQ(response.status, 302);
  EXPECT_EQ(response.headers.get("x-here"), "yes");
  EXPECT_EQ(response.body, "text");
  EXPECT_EQ(response.location, url(server) + "/b");
  EXPECT_EQ(seen.url, "/a?b=c");
  EXPECT_EQ(seen.headers.get("Range"), "bytes=5-");
  EXPECT_EQ(seen.headers.get("X-Token-TTL-Seconds"), "21600");
  EXPECT_THAT(seen.headers.get("User-Agent"), StartsWith("gputrain/"));
  for (const char* method : {"HEAD", "POST", "PUT"}) {
    request.method = method;
    request.body = method == std::string("POST") ? "{}" : "";
    EXPECT_EQ(curl_->send(request).body, method == std::string("HEAD") ? "" : "text");
    EXPECT_EQ(seen.method, method);
    EXPECT_EQ(seen.body, request.body);
  }
}

TEST_F(Curl, HandsOverContentAsItComes) {
  const std::string content(1 << 20, 'x');
  const Server server(listen_on("127.0.0.1", 0), [&](const Request& request) {
    return Response{.status = request.path() == "/there" ? 200 : 404, .body = content};
  });
  Request request = to(url(server) + "/there");
  std::string received;
  request.limits.bytes = 0;
  request.receive = [&](const Response& response, std::string_view bytes) {
    EXPECT_EQ(response.headers.get("Content-Length"), std::to_string(content.size()));
    received += bytes;
  };
  EXPECT_EQ(curl_->send(request).body, "");
  EXPECT_EQ(received, content);
  request.url = url(server) + "/elsewhere";
  EXPECT_THROW(curl_->send(request), Error) << "the text of the refusal is too large";
  request.url = url(server) + "/there";
  request.receive = [](const Response&, std::string_view) { throw std::out_of_range("full"); };
  EXPECT_THROW(curl_->send(request), std::out_of_range);
}

TEST_F(Curl, KnowsWhetherThereWasAConnection) {
  const gputrain::testing::LoopbackSocket socket;
  const Request request = to("http://127.0.0.1:" + std::to_string(socket.port()));
  EXPECT_THROW(curl_->send(request), Unreachable);
  ASSERT_EQ(::listen(socket.get(), 1), 0);
  const std::jthread closes([&] { ::close(::accept(socket.get(), nullptr, nullptr)); });
  try {
    curl_->send(request);
    FAIL() << "it closes the connection";
  } catch (const Unreachable&) {
    FAIL() << "there was a connection";
  } catch (const Interruption&) {
  }
}

TEST_F(Curl, IsCancelledAtOnce) {
  const gputrain::testing::LoopbackSocket silent;
  ASSERT_EQ(::listen(silent.get(), 1), 0);
  Cancellation cancellation;
  Request request = to("http://127.0.0.1:" + std::to_string(silent.port()));
  request.cancellation = &cancellation;
  const auto begin = std::chrono::steady_clock::now();
  const std::jthread cancels([&] { cancellation.cancel(); });
  EXPECT_THROW(curl_->send(request), Error);
  EXPECT_THROW(curl_->send(request), Error) << "it stays cancelled";
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
}

}  // namespace
}  // namespace gputrain::net
