#include "download.hpp"

#include <algorithm>
#include <charconv>

#include "gputrain/core/error.hpp"
#include "incomplete_file.hpp"

namespace gputrain::hub {
namespace {

bool is_alphanumeric(char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

/// Removes quotes and the mark of a weak etag; empty if it cannot be a file's name.
std::string plain_etag(std::string text) {
  if (text.starts_with("W/")) text.erase(0, 2);
  std::erase(text, '"');
  const auto fits = [](char c) { return is_alphanumeric(c) || c == '-' || c == '_'; };
  return text.size() <= 128 && std::ranges::all_of(text, fits) ? text : "";
}

std::optional<uint64_t> number(const std::string& text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc{} && end == text.data() + text.size() ? std::optional(value) : std::nullopt;
}

bool is_sha256(const std::string& etag) { return etag.size() == 64; }

/// Download of one file: requests what is missing until all is there.
class Download {
 public:
  Download(net::Client& client, const RemoteFile& remote, IncompleteFile& file, const Fetching& how)
      : client_(client), remote_(remote), file_(file), how_(how) {}

  void complete() {
    if (remote_.size && file_.size() > *remote_.size) file_.restart();
    if (remote_.size && file_.size() == *remote_.size) return;
    how_.retrying.run(
        remote_.url, [this] { ask_for_rest(); }, [this] { return received_; });
  }

 private:
  void ask_for_rest() {
    const uint64_t from = file_.size();
    bool begins = true;
    const auto receive = [&](const net::Response& reply, std::string_view bytes) {
      if (begins) begin(reply, from);
      begins = false;
      take(bytes);
    };
    const net::Response reply =
        client_.ask({.url = remote_.url, .headers = authorization(how_), .from = from, .receive = receive});
    if (reply.status == 416) {  // the server has no such bytes: ours are of another content
      file_.restart();
      throw net::Interruption("the server does not continue the file");
    }
    if (reply.status != 200 && reply.status != 206) refuse_answer(reply, how_);
    if (remote_.size && file_.size() < *remote_.size) throw net::Interruption("the server ends the file early");
  }

  void begin(const net::Response& reply, uint64_t from) {
    if (reply.status == 200) {
      if (from > 0) file_.restart();
      return;
    }
    if (reply.headers.get("content-range").starts_with("bytes " + std::to_string(from) + "-")) return;
    file_.restart();
    throw net::Interruption("the server sends another part of the file than asked for");
  }

  void take(std::string_view bytes) {
    if (remote_.size && file_.size() + bytes.size() > *remote_.size) {
      file_.restart();
      throw Error(ExitCode::data, {.what = "the server sends more than the " + std::to_string(*remote_.size) +
                                           " bytes that it announced",
                                   .where = remote_.url});
    }
    file_.append(bytes);
    received_ += bytes.size();
    if (how_.on_progress)
      how_.on_progress({.file = remote_.name, .received = file_.size(), .size = remote_.size.value_or(0)});
  }

  net::Client& client_;
  const RemoteFile& remote_;
  IncompleteFile& file_;
  const Fetching& how_;
  uint64_t received_ = 0;
};

std::string page_of(const Fetching& how) { return how.endpoint + "/" + how.model.name; }

Error::Parts not_allowed(const net::Response& reply, const Fetching& how) {
  const std::string code = reply.headers.get("x-error-code");
  const std::string token_hint = "set HF_TOKEN to a token of " + how.endpoint + "/settings/tokens";
  if (code == "GatedRepo" || reply.status == 403) {
    return {.what = how.model.name + " is only for those who have accepted its licence",
            .where = page_of(how),
            .hint = "accept it on that page" + (how.token.empty() ? ", and " + token_hint : "") +
                    (how.token.empty() ? "" : " with the account of this token, which must be allowed to read it")};
  }
  if (how.token.empty()) {
    return {.what = "there is no public model " + how.model.name,
            .where = page_of(how),
            .hint = "check the name; for a private one " + token_hint};
  }
  return {.what = "the Hub does not accept the token", .where = page_of(how), .hint = token_hint};
}

Error::Parts not_there(const net::Response& reply, const Fetching& how) {
  if (reply.headers.get("x-error-code") == "RevisionNotFound") {
    return {.what = how.model.name + " has no revision " + how.model.revision,
            .where = page_of(how),
            .hint = "--revision main, or a branch, tag or commit of that page"};
  }
  if (reply.headers.get("x-error-code") == "EntryNotFound")
    return {.what = "the repository does not have this file", .where = reply.url};
  return {.what = "there is no model " + how.model.name,
          .where = page_of(how),
          .hint = "check the name: it is ORGANIZATION/MODEL, as its page on the Hub says"};
}

}  // namespace

net::Headers authorization(const Fetching& how) {
  return how.token.empty() ? net::Headers() : net::Headers{{"Authorization", "Bearer " + how.token}};
}

void refuse_answer(const net::Response& reply, const Fetching& how) {
  if (reply.status == 401 || reply.status == 403) throw Error(ExitCode::data, not_allowed(reply, how));
  if (reply.status == 404) throw Error(ExitCode::data, not_there(reply, how));
  const std::string message = reply.headers.get("x-error-message");
  throw Error(ExitCode::environment, {.what = "the server answers " + std::to_string(reply.status) +
                                              (message.empty() ? "" : ": " + message.substr(0, 200)),
                                      .where = reply.url});
}

RemoteFile look_at(net::Client& client, const std::string& name, const std::string& url, const Fetching& how) {
  const net::Response reply = client.ask({.method = "HEAD", .url = url, .headers = authorization(how)}, how.retrying);
  if (reply.status != 200 && !reply.is_redirect()) refuse_answer(reply, how);
  const std::string linked = reply.headers.get("x-linked-etag");
  RemoteFile file{
      .name = name, .url = url, .etag = plain_etag(linked.empty() ? reply.headers.get("etag") : linked), .size = {}};
  file.size = number(reply.headers.get("x-linked-size"));
  if (!file.size && !reply.is_redirect()) file.size = number(reply.headers.get("content-length"));
  if (!file.etag.empty()) return file;
  throw Error(ExitCode::environment, {.what = "the server does not say which content the file has: there is no ETag",
                                      .where = url,
                                      .hint = "a proxy between may drop it; HF_ENDPOINT must be a Hugging Face Hub"});
}

void download(net::Client& client, const RemoteFile& remote, const std::filesystem::path& blob, const Fetching& how) {
  IncompleteFile file(blob.string() + ".incomplete");
  for (;;) {
    const bool is_continued = file.is_continued();
    Download(client, remote, file, how).complete();
    if (!is_sha256(remote.etag) || file.digest() == remote.etag) break;
    file.restart();
    if (is_continued) continue;  // the first part may be wrong
    throw Error(ExitCode::data, {.what = "what arrived has another SHA-256 than " + remote.etag,
                                 .where = remote.url,
                                 .hint = "fetch again; a proxy may have changed the content"});
  }
  file.move_to(blob);
}

}  // namespace gputrain::hub
