// Download of one file of a repository into the cache's `blobs`.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "gputrain/hub/fetch.hpp"

namespace gputrain::hub {

struct RemoteFile {
  std::string name;  // for messages
  std::string url;
  std::string etag;              // etag of the content: the SHA-256 of a large file; the blob's name in the cache
  std::optional<uint64_t> size;  // bytes; none: the server does not say
};

/// Returns the header with the user's token.
net::Headers authorization(const Fetching& how);

/// Asks for size and content hash. Throws Error(data) if the Hub refuses.
RemoteFile look_at(net::Client& client, const std::string& name, const std::string& url, const Fetching& how);

/// Fetches to `<blob>.incomplete`, continuing one that is there, checks the content and renames it to `blob`. Throws
/// Error(data) if the content does not match the etag, Error(environment) if network or disk fail.
void download(net::Client& client, const RemoteFile& file, const std::filesystem::path& blob, const Fetching& how);

/// Throws the error that explains an answer without content to the user.
[[noreturn]] void refuse_answer(const net::Response& reply, const Fetching& how);

}  // namespace gputrain::hub
