#include "gputrain/hub/cache.hpp"

#include <algorithm>
#include <cstdlib>
#include <fstream>

#include "gputrain/core/error.hpp"

namespace gputrain::hub {
namespace {

namespace fs = std::filesystem;

constexpr size_t kLongestName = 96;  // as the Hub's own limit

bool is_word(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_'; }

/// One part of a model's name. Two dashes would be read as the `/` of the cache's folder names.
bool is_name_part(std::string_view part) {
  const auto fits = [](char c) { return is_word(c) || c == '-' || c == '.'; };
  return !part.empty() && std::ranges::all_of(part, fits) && is_word(part.front()) && !part.ends_with('.') &&
         !part.ends_with('-') && !part.ends_with(".git") && part.find("--") == part.npos &&
         part.find("..") == part.npos;
}

/// A revision is the path of a file in `refs`, so it must not lead out of it.
bool is_revision(std::string_view text) {
  const auto fits = [](char c) { return is_word(c) || c == '-' || c == '.' || c == '/'; };
  return !text.empty() && text.size() <= 255 && std::ranges::all_of(text, fits) && text.front() != '/' &&
         text.front() != '.' && text.back() != '/' && text.find("..") == text.npos && text.find("/.") == text.npos &&
         text.find("//") == text.npos;
}

/// Weights and tokenizers are often given as a file, whose path may look like a name.
bool names_a_file(std::string_view text) {
  const std::string extension = fs::path(text).extension();
  return extension == ".safetensors" || extension == ".json" || extension == ".bin" || extension == ".pt" ||
         extension == ".pth" || extension == ".ckpt" || extension == ".gguf" || extension == ".txt" ||
         extension == ".model" || extension == ".tiktoken";
}

std::optional<std::string> not_empty(std::optional<std::string> text) {
  return text && !text->empty() ? text : std::nullopt;
}

/// `~` stands for the home folder here too, as in huggingface_hub.
fs::path with_home(const std::string& path, const Lookup& lookup) {
  if (path != "~" && !path.starts_with("~/")) return path;
  return lookup("HOME").value_or("/") + path.substr(1);
}

/// The commit that a branch or tag stood for when it was fetched; empty: unknown.
std::string commit_of(const fs::path& folder, const std::string& revision) {
  if (is_commit(revision)) return revision;
  std::ifstream file(folder / "refs" / revision);
  std::string commit;
  file >> commit;
  return is_commit(commit) ? commit : "";
}

struct Found {
  fs::path snapshot;  // empty: there is none
  fs::path missing;
};

Found find_in_cache(const ModelName& model) {
  const fs::path folder = model_folder(cache_folder(), model);
  const std::string commit = commit_of(folder, model.revision);
  if (commit.empty()) return {.snapshot = {}, .missing = folder / "refs" / model.revision};
  const fs::path snapshot = folder / "snapshots" / commit;
  std::error_code ignored;
  if (!fs::is_directory(snapshot, ignored)) return {.snapshot = {}, .missing = snapshot};
  return {.snapshot = snapshot, .missing = {}};
}

std::optional<ModelName> name_of_model_not_here(const std::string& text) {
  std::error_code unknown;
  const bool is_here = fs::exists(text, unknown);
  if (unknown == std::errc::permission_denied) throw fs::filesystem_error("cannot look", text, unknown);
  return is_here ? std::nullopt : model_name(text);
}

}  // namespace

std::optional<std::string> environment_variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

bool is_commit(std::string_view text) {
  const auto is_hex = [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); };
  return text.size() == 40 && std::ranges::all_of(text, is_hex);
}

std::optional<ModelName> model_name(std::string_view text) {
  ModelName model;
  const auto at = text.find('@');
  if (at != text.npos) model.revision = text.substr(at + 1);
  model.name = text.substr(0, at);
  if (names_a_file(model.name) || model.name.size() > kLongestName || !is_revision(model.revision)) return std::nullopt;
  const std::string_view name = model.name;
  const auto slash = name.find('/');
  if (!is_name_part(name.substr(0, slash))) return std::nullopt;
  if (slash != name.npos && !is_name_part(name.substr(slash + 1))) return std::nullopt;
  return model;
}

fs::path home_folder(const Lookup& lookup) {
  if (const auto home = not_empty(lookup("HF_HOME"))) return with_home(*home, lookup);
  const auto caches = not_empty(lookup("XDG_CACHE_HOME"));
  return with_home(caches.value_or("~/.cache"), lookup) / "huggingface";
}

fs::path cache_folder(const Lookup& lookup) {
  for (const char* variable : {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"}) {
    if (const auto folder = not_empty(lookup(variable))) return with_home(*folder, lookup);
  }
  return home_folder(lookup) / "hub";
}

fs::path cache_folder() { return cache_folder(environment_variable); }

fs::path model_folder(const fs::path& cache, const ModelName& model) {
  std::string folder = "models--" + model.name;
  if (const auto slash = folder.find('/'); slash != folder.npos) folder.replace(slash, 1, "--");
  return cache / folder;
}

fs::path pretrained_path(const std::string& name_or_path) {
  const auto model = name_of_model_not_here(name_or_path);
  if (!model) return name_or_path;
  const Found found = find_in_cache(*model);
  if (!found.snapshot.empty()) return found.snapshot;
  throw Error(ExitCode::data, {.what = "no such file or folder, and no such model in the Hugging Face cache: there is "
                                       "no " +
                                       found.missing.string(),
                               .where = name_or_path,
                               .hint = "gputrain fetch " + name_or_path});
}

fs::path pretrained_path_or_name(const std::string& name_or_path) {
  const auto model = name_of_model_not_here(name_or_path);
  if (!model) return name_or_path;
  const Found found = find_in_cache(*model);
  return found.snapshot.empty() ? fs::path(name_or_path) : found.snapshot;
}

}  // namespace gputrain::hub
