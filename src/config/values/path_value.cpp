#include "path_value.hpp"

#include <algorithm>
#include <array>

#include "gputrain/core/lower_case.hpp"
#include "gputrain/core/secrets.hpp"

namespace gputrain::config {
namespace {

bool begins_variable(std::string_view head) {
  if (head.size() < 2 || head[0] != '$') return false;
  const char c = head[1];
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

/// Returns "s3" of "s3://bucket/x", in lower case; empty: the text is no address.
std::string scheme_of(std::string_view text) {
  const size_t end = text.find("://");
  std::string scheme;
  for (const char letter : text.substr(0, end == std::string_view::npos ? 0 : end)) scheme += lower_case(letter);
  const bool is_scheme = scheme.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789+.-") == std::string::npos;
  return is_scheme && !scheme.empty() && scheme[0] >= 'a' && scheme[0] <= 'z' ? scheme : "";
}

/// Stores by the schemes of their addresses, with programs that make folders of them.
struct Store {
  std::string_view schemes, mounts, copies;
};
constexpr std::array<Store, 4> kStores{{
    {" s3 s3a s3n ", "mount-s3 or rclone mount", "aws s3 sync"},
    {" gs gcs ", "gcsfuse", "gcloud storage rsync"},
    {" az abfs abfss wasb wasbs adl ", "blobfuse2", "azcopy sync"},
    {" hdfs ", "hdfs-fuse", "hdfs dfs -get"},
}};

/// Returns "ORG/NAME" of "hf://models/ORG/NAME/..." or "https://huggingface.co/ORG/NAME/..."; empty: another address.
std::string name_on_the_hub(std::string_view text, const std::string& scheme) {
  std::string_view rest = text.substr(scheme.size() + 3);
  for (const std::string_view host : {"huggingface.co/", "hf.co/"}) {
    if (scheme == "hf" || !rest.starts_with(host)) continue;
    rest.remove_prefix(host.size());
    return name_on_the_hub("hf://" + std::string(rest), "hf");
  }
  if (scheme != "hf") return {};
  if (rest.starts_with("models/")) rest.remove_prefix(7);
  const size_t slash = rest.find('/'), end = slash == std::string_view::npos ? slash : rest.find('/', slash + 1);
  const bool is_model =
      slash != std::string_view::npos && !rest.starts_with("datasets/") && !rest.starts_with("buckets/");
  return is_model ? printable(rest.substr(0, end)) : "";
}

std::string instead_of_address(std::string_view text, const std::string& scheme) {
  if (scheme == "file") return "write the path alone: " + printable(text.substr(7));
  for (const Store& store : kStores) {
    if (store.schemes.find(" " + scheme + " ") == std::string_view::npos) continue;
    return "give a folder: one where " + std::string(store.mounts) + " shows it, or one on a disk, copied by " +
           std::string(store.copies);
  }
  const std::string name = name_on_the_hub(text, scheme);
  if (!name.empty()) return "run `gputrain fetch " + name + "`, then give the name alone: " + name;
  return "give a file or a folder on a disk: download it first";
}

}  // namespace

Parsed<std::string> parse_path(std::string_view text, const Environment& environment) {
  if (const std::string scheme = scheme_of(text); !scheme.empty())
    return {.problem = "`" + printable(without_url_secrets(text)) + "` is an address, which is never opened here",
            .hint = instead_of_address(text, scheme)};
  const std::string_view head = text.substr(0, text.find('/'));
  if (head == "~" || head == "$HOME") {
    auto home = environment("HOME");
    if (!home || home->empty() || printable(*home) != *home)
      return {.problem = "the home folder is unknown, as HOME is not set to a path", .hint = "write the whole path"};
    while (home->ends_with('/')) home->pop_back();
    const std::string path = *home + std::string(text.substr(head.size()));
    return {.value = path.empty() ? "/" : path};
  }
  if (head.starts_with('~'))
    return {.problem = shown(head) + " would be the home folder of another user, which only a shell knows",
            .hint = "write the whole path; for a file whose name begins with '~' write `./" + printable(text) + "`"};
  if (begins_variable(head))
    return {.problem = shown(head) + " is not replaced here", .hint = "write ${env:" + printable(head.substr(1)) + "}"};
  return {.value = std::string(text)};
}

}  // namespace gputrain::config
