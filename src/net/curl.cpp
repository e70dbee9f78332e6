#include <curl/curl.h>
#include <sys/socket.h>

#include <array>
#include <cstdlib>
#include <exception>

#include "gputrain/core/error.hpp"
#include "gputrain/net/cancellation.hpp"
#include "gputrain/net/client.hpp"
#include "gputrain/net/server.hpp"

namespace gputrain::net {
namespace {

template <class T, auto kFree>
struct Freed {
  void operator()(T* object) const { kFree(object); }
};
template <class T, auto kFree>
using Owned = std::unique_ptr<T, Freed<T, kFree>>;

/// What the callbacks of one request fill.
struct Exchange {
  CURL* handle;
  const Request& request;
  Response response = {};
  std::exception_ptr failure = {};
  int socket = -1;
};

size_t take_header(const char* data, size_t, size_t size, void* to) {
  Headers& headers = static_cast<Exchange*>(to)->response.headers;
  const std::string_view line(data, size);
  if (line.starts_with("HTTP/"))
    headers.clear();  // those of "100 Continue" or of a proxy are over
  else
    headers.read(line);
  return size;
}

long number_of(CURL* handle, CURLINFO info) {
  long number = 0;
  curl_easy_getinfo(handle, info, &number);
  return number;
}

size_t take_body(const char* data, size_t, size_t size, void* to) {
  auto& [handle, request, response, failure, socket] = *static_cast<Exchange*>(to);
  response.status = static_cast<int>(number_of(handle, CURLINFO_RESPONSE_CODE));
  try {
    if (request.receive && (response.status == 200 || response.status == 206)) {
      request.receive(response, {data, size});
    } else if (response.body.size() + size <= request.limits.bytes) {
      response.body.append(data, size);
    } else {
      throw Error(ExitCode::environment, {.what = "the answer is too large", .where = request.url});
    }
    return size;
  } catch (...) {  // must not pass through C
    failure = std::current_exception();
    return 0;
  }
}

curl_socket_t open_socket(void* to, curlsocktype, curl_sockaddr* at) {
  return static_cast<Exchange*>(to)->socket = ::socket(at->family, at->socktype | SOCK_CLOEXEC, at->protocol);
}

int require_own_process(void* to, char*, char*, int, int) {
  auto& exchange = *static_cast<Exchange*>(to);
  if (is_own_process(exchange.socket)) return CURL_PREREQFUNC_OK;
  exchange.failure =
      std::make_exception_ptr(Error(ExitCode::environment, {.what = "the process that answers is another user's"}));
  return CURL_PREREQFUNC_ABORT;
}

void set_local_socket(CURL* curl, const std::string& name, Exchange& exchange) {
  curl_easy_setopt(curl, CURLOPT_ABSTRACT_UNIX_SOCKET, name.c_str());
  curl_easy_setopt(curl, CURLOPT_OPENSOCKETFUNCTION, open_socket);
  curl_easy_setopt(curl, CURLOPT_OPENSOCKETDATA, &exchange);
  curl_easy_setopt(curl, CURLOPT_PREREQFUNCTION, require_own_process);
  curl_easy_setopt(curl, CURLOPT_PREREQDATA, &exchange);
  curl_easy_setopt(curl, CURLOPT_FRESH_CONNECT, 1L);
}

void set_method(CURL* curl, const Request& request) {
  if (request.method == "HEAD") {
    curl_easy_setopt(curl, CURLOPT_NOBODY, 1L);
  } else if (request.method == "POST" || !request.body.empty()) {
    curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(request.body.size()));
    curl_easy_setopt(curl, CURLOPT_POSTFIELDS, request.body.c_str());
  }
  if (request.method == "PUT") curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, request.method.c_str());
}

void set_limits(CURL* curl, const Limits& limits) {
  curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(limits.connect.count()));
  curl_easy_setopt(curl, CURLOPT_LOW_SPEED_LIMIT, 1L);
  curl_easy_setopt(curl, CURLOPT_LOW_SPEED_TIME, static_cast<long>(limits.silent.count()));
  curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, static_cast<long>(limits.total.count()));
}

[[noreturn]] void fail(CURLcode code, const std::string& why, const Exchange& exchange) {
  switch (code) {
    case CURLE_UNSUPPORTED_PROTOCOL:  // no further try helps against these
    case CURLE_URL_MALFORMAT:
    case CURLE_SSL_CERTPROBLEM:
    case CURLE_OUT_OF_MEMORY:
    case CURLE_ABORTED_BY_CALLBACK:
      throw Error(ExitCode::environment, {.what = why, .where = exchange.request.url});
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
      throw Error(ExitCode::environment, {.what = why,
                                          .where = exchange.request.url,
                                          .hint = "install the package ca-certificates, or name a file of "
                                                  "certificates in SSL_CERT_FILE"});
    default:
      if (number_of(exchange.handle, CURLINFO_REQUEST_SIZE) == 0) throw Unreachable(why);
      throw Interruption(why);
  }
}

class CurlTransport final : public Transport {
 public:
  CurlTransport() {
    static const CURLcode started = curl_global_init(CURL_GLOBAL_DEFAULT);
    multi_.reset(curl_multi_init());
    easy_.reset(curl_easy_init());
    if (started != CURLE_OK || !multi_ || !easy_) throw Error(ExitCode::environment, {.what = "cannot start libcurl"});
  }

  Response send(const Request& request) override;

 private:
  void prepare(const Request& request);
  CURLcode perform(const Cancellation* cancellation);

  Owned<CURLM, curl_multi_cleanup> multi_;
  Owned<CURL, curl_easy_cleanup> easy_;
  Owned<curl_slist, curl_slist_free_all> headers_;
  std::array<char, CURL_ERROR_SIZE> problem_{};
};

void CurlTransport::prepare(const Request& request) {
  CURL* curl = easy_.get();
  curl_easy_reset(curl);  // keeps open connections
  problem_[0] = '\0';
  headers_.reset();
  for (const auto& [name, value] : request.headers)
    headers_.reset(curl_slist_append(headers_.release(), (name + ": " + value).c_str()));
  curl_easy_setopt(curl, CURLOPT_URL, request.url.c_str());
  curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, problem_.data());
  curl_easy_setopt(curl, CURLOPT_USERAGENT, "gputrain/" GPUTRAIN_VERSION);
  curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers_.get());
  set_method(curl, request);
  set_limits(curl, request.limits);
  if (!request.may_use_proxy) curl_easy_setopt(curl, CURLOPT_PROXY, "");
  const std::string range = std::to_string(request.from) + "-";
  if (request.from > 0) curl_easy_setopt(curl, CURLOPT_RANGE, range.c_str());
  const char* const certificates = std::getenv("SSL_CERT_FILE");
  if (certificates != nullptr && *certificates != '\0') curl_easy_setopt(curl, CURLOPT_CAINFO, certificates);
}

CURLcode CurlTransport::perform(const Cancellation* cancellation) {
  curl_waitfd stop{
      .fd = cancellation != nullptr ? cancellation->descriptor() : -1, .events = CURL_WAIT_POLLIN, .revents = 0};
  constexpr int kMostMilliseconds = 10'000;  // libcurl's own timers end the wait earlier
  curl_multi_add_handle(multi_.get(), easy_.get());
  int running = 1;
  while (curl_multi_perform(multi_.get(), &running) == CURLM_OK && running > 0 && stop.revents == 0) {
    if (curl_multi_poll(multi_.get(), &stop, cancellation != nullptr ? 1 : 0, kMostMilliseconds, nullptr) != CURLM_OK)
      break;
  }
  CURLcode code = CURLE_ABORTED_BY_CALLBACK;
  int waiting = 0;
  while (const CURLMsg* message = curl_multi_info_read(multi_.get(), &waiting)) code = message->data.result;
  curl_multi_remove_handle(multi_.get(), easy_.get());
  return code;
}

Response CurlTransport::send(const Request& request) {
  CURL* curl = easy_.get();
  Exchange exchange{.handle = curl, .request = request};
  prepare(request);
  curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, take_header);
  curl_easy_setopt(curl, CURLOPT_HEADERDATA, &exchange);
  curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, take_body);
  curl_easy_setopt(curl, CURLOPT_WRITEDATA, &exchange);
  if (!request.local_socket.empty()) set_local_socket(curl, request.local_socket, exchange);
  const CURLcode code = perform(request.cancellation);
  if (exchange.failure) std::rethrow_exception(exchange.failure);
  const bool has_reason = problem_[0] != '\0' && request.local_socket.empty();  // it would name another socket
  if (code != CURLE_OK) fail(code, has_reason ? problem_.data() : curl_easy_strerror(code), exchange);
  char* location = nullptr;
  curl_easy_getinfo(curl, CURLINFO_REDIRECT_URL, &location);
  exchange.response.status = static_cast<int>(number_of(curl, CURLINFO_RESPONSE_CODE));
  exchange.response.url = request.url;
  if (location != nullptr) exchange.response.location = location;
  return std::move(exchange.response);
}

}  // namespace

std::unique_ptr<Transport> curl_transport() { return std::make_unique<CurlTransport>(); }

}  // namespace gputrain::net
