#include "gputrain/hub/fetch.hpp"

#include <fcntl.h>
#include <sys/file.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <thread>

#include <nlohmann/json.hpp>

#include "chosen_files.hpp"
#include "download.hpp"
#include "gputrain/core/atomic_file.hpp"
#include "gputrain/core/descriptor.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/core/json.hpp"
#include "gputrain/core/lower_case.hpp"

namespace gputrain::hub {
namespace {

/// Lock that processes of this and other programs hold while they write one file of the cache. Waits as huggingface_hub
/// does: as long as the other process lives. `on_wait` is called from time to time. Does nothing on a file system
/// without locks.
class FileLock {
 public:
  FileLock(const std::filesystem::path& path, const std::function<void()>& on_wait)
      : file_(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, kMode)) {
    while (file_.get() >= 0 && ::flock(file_.get(), LOCK_EX | LOCK_NB) != 0 &&
           (errno == EWOULDBLOCK || errno == EINTR)) {
      on_wait();
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
  }

 private:
  static constexpr mode_t kMode = 0664;  // for a cache that others of the group may share
  Descriptor file_;                      // lock, until it is closed
};

namespace fs = std::filesystem;

std::string text_in(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string token_from_environment(const Lookup& lookup) {
  std::string token = lookup("HF_TOKEN").value_or("");
  std::string where = "HF_TOKEN";
  if (token.empty()) {
    const auto path = lookup("HF_TOKEN_PATH");
    where = path && !path->empty() ? *path : (home_folder(lookup) / "token").string();
    token = text_in(where);
  }
  const auto is_space = [](char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; };
  while (!token.empty() && is_space(token.back())) token.pop_back();
  token.erase(token.begin(), std::ranges::find_if_not(token, is_space));
  if (std::ranges::all_of(token, [](char c) { return c > ' ' && c <= '~'; })) return token;
  throw Error(ExitCode::usage, {.what = "the token has characters that no token has", .where = where});
}

std::string escaped(const std::string& text) {
  constexpr const char* kDigits = "0123456789ABCDEF";
  std::string url;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const bool is_plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' ||
                          c == '_' || c == '.' || c == '~';
    is_plain ? url += c : url += {'%', kDigits[byte >> 4], kDigits[byte & 15]};
  }
  return url;
}

/// Files of a revision.
struct Repository {
  std::string commit;
  std::vector<std::string> names;
  std::map<std::string, uint64_t> sizes;  // bytes, if the Hub tells them
};

Repository repository_of(net::Client& client, const Fetching& how) {
  const std::string url =
      how.endpoint + "/api/models/" + how.model.name + "/revision/" + escaped(how.model.revision) + "?blobs=true";
  const net::Response reply = client.ask({.url = url, .headers = authorization(how)}, how.retrying);
  if (reply.status != 200) refuse_answer(reply, how);
  const auto info = parse_json(reply.body);
  const auto text_at = [](const nlohmann::json& object, const char* key) {
    const auto found = object.is_object() ? object.find(key) : object.end();
    return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
  };
  Repository repository{.commit = text_at(info, "sha"), .names = {}, .sizes = {}};
  if (!is_commit(repository.commit) || !info.contains("siblings") || !info["siblings"].is_array()) {
    throw Error(
        ExitCode::environment,
        {.what = "the answer describes no model", .where = url, .hint = "HF_ENDPOINT must be a Hugging Face Hub"});
  }
  for (const nlohmann::json& file : info["siblings"]) {
    const std::string name = text_at(file, "rfilename");
    if (!is_plain_name(name)) continue;
    repository.names.push_back(name);
    if (file.contains("size") && file["size"].is_number_unsigned())
      repository.sizes[name] = file["size"].get<uint64_t>();
  }
  return repository;
}

/// Snapshot of one revision: fetches files and links them into it.
class Snapshot {
 public:
  Snapshot(net::Client& client, const Fetching& how, const Repository& repository)
      : client_(client),
        how_(how),
        repository_(repository),
        folder_(model_folder(how.cache, how.model)),
        locks_(how.cache / ".locks" / folder_.filename()),
        path_(folder_ / "snapshots" / repository.commit) {
    for (const fs::path& each : {folder_ / "blobs", locks_, path_}) fs::create_directories(each);
  }

  const fs::path& path() const { return path_; }

  /// Throws Error(environment) if the disk has no room for all of these files.
  void require_room(const std::vector<std::string>& names) const {
    uint64_t missing = 0;
    for (const std::string& name : names) {
      const auto size = repository_.sizes.find(name);
      if (size != repository_.sizes.end() && !is_here(name)) missing += size->second;
    }
    for (const auto& entry : fs::directory_iterator(folder_ / "blobs")) {
      if (entry.path().extension() == ".incomplete") missing -= std::min<uint64_t>(missing, entry.file_size());
    }
    const uint64_t room = fs::space(folder_).available;
    if (missing <= room) return;
    constexpr uint64_t kMebibyte = 1 << 20;
    throw Error(ExitCode::environment,
                {.what = "there is no room: " + std::to_string(missing / kMebibyte) + " MiB are to come, and " +
                         std::to_string(room / kMebibyte) + " MiB are free",
                 .where = how_.cache.string(),
                 .hint = "make room, or let HF_HUB_CACHE name a folder on another disk"});
  }

  FetchedFile add(const std::string& name) {
    const bool was_here = is_here(name);
    if (!was_here) fetch(name);
    return {.name = name, .bytes = fs::file_size(path_ / name), .was_here = was_here};
  }

  /// Points the revision's name to this commit.
  void commit() const {
    if (how_.model.revision == repository_.commit) return;
    const fs::path path = folder_ / "refs" / how_.model.revision;
    if (text_in(path) == repository_.commit) return;
    fs::create_directories(path.parent_path());
    write_file_atomically(path, repository_.commit, ExitCode::environment);
  }

 private:
  /// Returns whether the file is here. A commit never changes, so a file of its size needs no question to the server.
  bool is_here(const std::string& name) const {
    std::error_code error;
    const auto bytes = fs::file_size(path_ / name, error);
    if (error) return false;
    const auto size = repository_.sizes.find(name);
    return size == repository_.sizes.end() || size->second == bytes;
  }

  void fetch(const std::string& name) {
    const std::string url =
        how_.endpoint + "/" + how_.model.name + "/resolve/" + repository_.commit + "/" + escaped(name);
    const RemoteFile file = look_at(client_, name, url, how_);
    const fs::path blob = folder_ / "blobs" / file.etag;
    const FileLock lock(locks_ / (file.etag + ".lock"), [&] {
      if (how_.retrying.on_trouble) how_.retrying.on_trouble("another process fetches " + name);
    });
    std::error_code error;
    const auto bytes = fs::file_size(blob, error);
    if (error || (file.size && *file.size != bytes)) download(client_, file, blob, how_);
    link(name, file.etag);
  }

  /// Links the file. A link to another content is replaced, and never missing in between.
  void link(const std::string& name, const std::string& etag) const {
    const fs::path target = fs::path("../../blobs") / etag, made = path_ / (name + ".partial");
    fs::remove(made);
    fs::create_symlink(target, made);
    fs::rename(made, path_ / name);
  }

  net::Client& client_;
  const Fetching& how_;
  const Repository& repository_;
  fs::path folder_, locks_, path_;
};

Fetched fetch_all(const Fetching& how, net::Client& client) {
  const Repository repository = repository_of(client, how);
  Snapshot snapshot(client, how, repository);
  Fetched fetched{.snapshot = snapshot.path(), .commit = repository.commit, .files = {}};
  const auto add = [&](const std::vector<std::string>& names) {
    snapshot.require_room(names);
    for (const std::string& name : names) fetched.files.push_back(snapshot.add(name));
  };
  add(describing_files(repository.names));
  if (how.takes_weights) add(weight_files(repository.names, snapshot.path()));
  snapshot.commit();
  return fetched;
}

/// Returns the variable that tells huggingface_hub to send no requests; empty: none.
std::string offline_variable(const Lookup& lookup) {
  for (const char* name : {"HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"}) {
    const std::string value = lower_case(lookup(name).value_or(""));
    for (const char* yes : {"1", "on", "yes", "true"})
      if (value == yes) return name;
    if (!value.empty()) return {};  // the first one that is set counts
  }
  return {};
}

/// Returns the cached files of the model.
Fetched found_in_cache(const Fetching& how) {
  const auto refuse = [&](const std::string& what) {
    throw Error(
        ExitCode::environment,
        {.what = how.offline + " is set (offline), so nothing was fetched: " + what,
         .where = how.model.name,
         .hint = "unset " + how.offline + ", or fetch where there is a network and copy the folder of the cache"});
  };
  Fetched found{.snapshot = snapshot_in(how.cache, how.model), .commit = {}, .files = {}};
  if (found.snapshot.empty()) refuse("the model is not in " + how.cache.string());
  found.commit = found.snapshot.filename();
  for (const auto& entry : fs::directory_iterator(found.snapshot)) {
    const std::string name = entry.path().filename();
    if (!fs::exists(entry.path())) refuse(name + " is a link to a file that is not there");
    if (fs::is_regular_file(entry.path()))
      found.files.push_back({.name = name, .bytes = fs::file_size(entry.path()), .was_here = true});
  }
  std::vector<std::string> names;
  for (const FetchedFile& file : found.files) names.push_back(file.name);
  if (how.takes_weights && weight_files(names, found.snapshot).empty()) refuse("the cache has no weights of it");
  return found;
}

}  // namespace

Fetching fetching_from_environment(const ModelName& model, const Lookup& lookup) {
  Fetching how{.model = model,
               .token = token_from_environment(lookup),
               .cache = cache_folder(lookup),
               .offline = offline_variable(lookup)};
  if (const auto endpoint = lookup("HF_ENDPOINT"); endpoint && !endpoint->empty()) how.endpoint = *endpoint;
  while (how.endpoint.ends_with('/')) how.endpoint.pop_back();
  if (how.endpoint.starts_with("https://") || how.endpoint.starts_with("http://")) return how;
  throw Error(ExitCode::usage, {.what = "HF_ENDPOINT is no address of a server: " + how.endpoint,
                                .where = "environment",
                                .hint = "https://huggingface.co"});
}

Fetched fetch(const Fetching& how, net::Client client) {
  try {
    return how.offline.empty() ? fetch_all(how, client) : found_in_cache(how);
  } catch (const fs::filesystem_error& error) {
    throw Error(ExitCode::environment, {.what = "cannot write to the cache: " + error.code().message(),
                                        .where = error.path1().string(),
                                        .hint = "let HF_HUB_CACHE name a folder that you may write to"});
  }
}

}  // namespace gputrain::hub
