#include "gputrain/net/client.hpp"

#include <curl/curl.h>

#include <chrono>
#include <thread>

#include "gputrain/core/error.hpp"
#include "gputrain/core/lower_case.hpp"

namespace gputrain::net {
namespace {

constexpr int kMostRedirects = 10;

struct Origin {
  std::string scheme, host, port;
  bool operator==(const Origin&) const = default;
};

std::string part_of(CURLU* url, CURLUPart part, unsigned flags) {
  char* text = nullptr;
  if (curl_url_get(url, part, &text, flags) != CURLUE_OK) return {};
  std::string value = lower_case(text);
  curl_free(text);
  return value;
}

Origin origin_of(const std::string& address) {
  const std::unique_ptr<CURLU, decltype(&curl_url_cleanup)> url(curl_url(), curl_url_cleanup);
  if (curl_url_set(url.get(), CURLUPART_URL, address.c_str(), 0) != CURLUE_OK) return {};
  return {part_of(url.get(), CURLUPART_SCHEME, 0), part_of(url.get(), CURLUPART_HOST, 0),
          part_of(url.get(), CURLUPART_PORT, CURLU_DEFAULT_PORT)};
}

bool is_busy(int status) { return status >= 500 || status == 429 || status == 408; }

}  // namespace

std::string reason_of(const std::exception& failure) {
  const auto* error = dynamic_cast<const Error*>(&failure);
  return error != nullptr ? error->parts().what : failure.what();
}

void Retrying::wait(const std::string& url, int failures, const std::string& why) const {
  if (failures == kTries)
    throw Error(ExitCode::environment,
                {.what = why + " (tried " + std::to_string(kTries) + " times)", .where = url, .hint = hint});
  if (on_trouble) on_trouble(why + "; try " + std::to_string(failures + 1) + " of " + std::to_string(kTries));
  std::this_thread::sleep_for(std::chrono::duration<double>(first_pause_seconds * (1 << (failures - 1))));
}

void Retrying::run(const std::string& url, const std::function<void()>& action,
                   const std::function<uint64_t()>& progress) const {
  uint64_t before = progress ? progress() : 0;
  for (int failures = 0;;) {
    try {
      return action();
    } catch (const Interruption& interruption) {
      const uint64_t now = progress ? progress() : 0;
      if (now > before) failures = 0;
      before = now;
      wait(url, ++failures, interruption.what());
    }
  }
}

Response Client::ask(const Request& request) {
  const Origin home = origin_of(request.url);
  Request next = request;
  for (int hop = 0; hop <= kMostRedirects; ++hop) {
    next.headers = origin_of(next.url) == home ? request.headers : Headers();
    Response response = transport_->send(next);
    if (is_busy(response.status)) throw Busy("the server answers " + std::to_string(response.status));
    const Origin there = origin_of(response.location);
    if (!response.is_redirect() || (request.method != "GET" && there != home)) return response;
    if (home.scheme == "https" && there.scheme != "https")
      throw Error(ExitCode::environment, {.what = "redirects to an address without encryption", .where = next.url});
    next.url = response.location;
  }
  throw Error(ExitCode::environment, {.what = "redirects without end", .where = request.url});
}

Response Client::ask(const Request& request, const Retrying& retrying) {
  Response response;
  retrying.run(request.url, [&] { response = ask(request); });
  return response;
}

}  // namespace gputrain::net
