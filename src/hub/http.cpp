#include "gputrain/hub/http.hpp"

#include <curl/curl.h>

#include <array>
#include <exception>

#include "gputrain/core/error.hpp"
#include "gputrain/core/lower_case.hpp"
#include "gputrain/hub/cache.hpp"

namespace gputrain::hub {
namespace {

constexpr int kMostRedirects = 10;
constexpr size_t kMostHeld = 64 << 20;  // bytes of a body that is kept in memory

/// What the callbacks of one request fill.
struct Exchange {
  CURL* handle = nullptr;
  const HttpRequest* request = nullptr;
  Reply reply;
  std::exception_ptr failure;
};

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\r' || text.back() == '\n')) text.remove_suffix(1);
  return text;
}

size_t take_header(const char* data, size_t, size_t size, void* to) {
  auto& reply = static_cast<Exchange*>(to)->reply;
  const std::string_view line(data, size);
  if (line.starts_with("HTTP/")) reply.headers.clear();  // those of "100 Continue" or of a proxy are over
  const auto colon = line.find(':');
  if (colon != line.npos)
    reply.headers[lower_case(line.substr(0, colon))] = std::string(trimmed(line.substr(colon + 1)));
  return size;
}

size_t take_body(const char* data, size_t, size_t size, void* to) {
  auto& exchange = *static_cast<Exchange*>(to);
  long status = 0;
  curl_easy_getinfo(exchange.handle, CURLINFO_RESPONSE_CODE, &status);
  exchange.reply.status = static_cast<int>(status);
  try {
    if (exchange.request->receive && (status == 200 || status == 206)) {
      exchange.request->receive(exchange.reply, {data, size});
    } else if (exchange.reply.body.size() + size <= kMostHeld) {
      exchange.reply.body.append(data, size);
    } else {
      throw Error(ExitCode::environment, {.what = "the answer is too large", .where = exchange.request->url});
    }
    return size;
  } catch (...) {  // must not pass through C
    exchange.failure = std::current_exception();
    return 0;
  }
}

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

/// No further try helps against these.
bool is_final(CURLcode code) {
  switch (code) {
    case CURLE_UNSUPPORTED_PROTOCOL:
    case CURLE_URL_MALFORMAT:
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_CERTPROBLEM:
    case CURLE_OUT_OF_MEMORY:
      return true;
    default:
      return false;
  }
}

[[noreturn]] void refuse(CURLcode code, const std::string& why, const std::string& url) {
  const bool is_certificate = code == CURLE_PEER_FAILED_VERIFICATION || code == CURLE_SSL_CACERT_BADFILE;
  throw Error(ExitCode::environment,
              {.what = why,
               .where = url,
               .hint = is_certificate ? "install the package ca-certificates, or name a file of certificates in "
                                        "SSL_CERT_FILE"
                                      : ""});
}

bool is_busy(int status) { return status >= 500 || status == 429 || status == 408; }

struct Headers {
  curl_slist* list = nullptr;
  Headers() = default;
  Headers(const Headers&) = delete;
  Headers& operator=(const Headers&) = delete;
  ~Headers() { curl_slist_free_all(list); }
  void add(const std::string& line) { list = curl_slist_append(list, line.c_str()); }
};

}  // namespace

std::string Reply::header(const std::string& name) const {
  const auto found = headers.find(name);
  return found == headers.end() ? "" : found->second;
}

struct Http::Handle {
  CURL* curl = curl_easy_init();
  std::array<char, CURL_ERROR_SIZE> problem{};
  ~Handle() { curl_easy_cleanup(curl); }
};

Http::Http() {
  curl_global_init(CURL_GLOBAL_DEFAULT);
  handle_ = std::make_unique<Handle>();
  if (handle_->curl == nullptr) throw Error(ExitCode::environment, {.what = "cannot start libcurl"});
}

Http::~Http() = default;

Reply Http::ask(const HttpRequest& request) {
  const Origin home = origin_of(request.url);
  std::string url = request.url;
  for (int hop = 0; hop <= kMostRedirects; ++hop) {
    const bool is_home = origin_of(url) == home;
    Reply reply = ask_once(request, url, is_home);
    if (is_busy(reply.status)) throw Interruption("the server answers " + std::to_string(reply.status));
    const bool stays_home = request.head || !request.json.empty();
    if (!reply.is_redirect() || (stays_home && origin_of(reply.location) != home)) return reply;
    if (home.scheme == "https" && origin_of(reply.location).scheme != "https")
      throw Error(ExitCode::environment, {.what = "redirects to an address without encryption", .where = url});
    url = reply.location;
  }
  throw Error(ExitCode::environment, {.what = "redirects without end", .where = request.url});
}

Reply Http::ask_once(const HttpRequest& request, const std::string& url, bool with_token) {
  CURL* curl = handle_->curl;
  Exchange exchange{.handle = curl, .request = &request, .reply = {}, .failure = {}};
  Headers headers;
  if (with_token && !request.token.empty()) headers.add("Authorization: Bearer " + request.token);
  if (!request.json.empty()) headers.add("Content-Type: application/json");
  curl_easy_reset(curl);  // keeps open connections
  handle_->problem[0] = '\0';
  curl_easy_setopt(curl, CURLOPT_URL, url.c_str());
  curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, handle_->problem.data());
  curl_easy_setopt(curl, CURLOPT_USERAGENT, "gputrain/" GPUTRAIN_VERSION);
  curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT, request.limits.connect);
  curl_easy_setopt(curl, CURLOPT_LOW_SPEED_LIMIT, 1L);
  curl_easy_setopt(curl, CURLOPT_LOW_SPEED_TIME, request.limits.silent);
  curl_easy_setopt(curl, CURLOPT_TIMEOUT, request.limits.total);
  curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers.list);
  curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, take_header);
  curl_easy_setopt(curl, CURLOPT_HEADERDATA, &exchange);
  curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, take_body);
  curl_easy_setopt(curl, CURLOPT_WRITEDATA, &exchange);
  if (with_token && !request.user.empty()) {
    curl_easy_setopt(curl, CURLOPT_USERNAME, request.user.c_str());
    curl_easy_setopt(curl, CURLOPT_PASSWORD, request.password.c_str());
  }
  if (!request.json.empty()) {
    curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(request.json.size()));
    curl_easy_setopt(curl, CURLOPT_POSTFIELDS, request.json.c_str());
  }
  if (request.head) curl_easy_setopt(curl, CURLOPT_NOBODY, 1L);
  const std::string range = std::to_string(request.from) + "-";
  if (request.from > 0) curl_easy_setopt(curl, CURLOPT_RANGE, range.c_str());
  const auto certificates = environment_variable("SSL_CERT_FILE");
  if (certificates && !certificates->empty()) curl_easy_setopt(curl, CURLOPT_CAINFO, certificates->c_str());

  const CURLcode code = curl_easy_perform(curl);
  if (exchange.failure) std::rethrow_exception(exchange.failure);
  if (code != CURLE_OK) {
    const std::string why = handle_->problem[0] != '\0' ? handle_->problem.data() : curl_easy_strerror(code);
    if (is_final(code)) refuse(code, why, url);
    throw Interruption(why);
  }
  long status = 0;
  curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
  char* location = nullptr;
  curl_easy_getinfo(curl, CURLINFO_REDIRECT_URL, &location);
  exchange.reply.status = static_cast<int>(status);
  exchange.reply.url = url;
  if (location != nullptr) exchange.reply.location = location;
  return exchange.reply;
}

}  // namespace gputrain::hub
