#include "gputrain/hub/cache.hpp"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <vector>

#include "gputrain/config/names.hpp"
#include "gputrain/core/error.hpp"

namespace gputrain::hub {
namespace {

namespace fs = std::filesystem;

constexpr size_t kLongestName = 96;  // limit of the Hub

bool is_word(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_'; }

/// Checks one part of a model's name. Two dashes would be read as the `/` of the cache's folder names.
bool is_name_part(std::string_view part) {
  const auto fits = [](char c) { return is_word(c) || c == '-' || c == '.'; };
  return !part.empty() && std::ranges::all_of(part, fits) && is_word(part.front()) && !part.ends_with('.') &&
         !part.ends_with('-') && !part.ends_with(".git") && part.find("--") == part.npos &&
         part.find("..") == part.npos;
}

/// Checks a revision, which is the path of a file in `refs` and must not lead out of it.
bool is_revision(std::string_view text) {
  const auto fits = [](char c) { return is_word(c) || c == '-' || c == '.' || c == '/'; };
  return !text.empty() && text.size() <= 255 && std::ranges::all_of(text, fits) && text.front() != '/' &&
         text.front() != '.' && text.back() != '/' && text.find("..") == text.npos && text.find("/.") == text.npos &&
         text.find("//") == text.npos;
}

/// Returns whether the text is a file: the paths of weights and tokenizers may look like names.
bool names_a_file(std::string_view text) {
  const std::string extension = fs::path(text).extension();
  return extension == ".safetensors" || extension == ".json" || extension == ".bin" || extension == ".pt" ||
         extension == ".pth" || extension == ".ckpt" || extension == ".gguf" || extension == ".txt" ||
         extension == ".model" || extension == ".tiktoken";
}

std::optional<std::string> not_empty(std::optional<std::string> text) {
  return text && !text->empty() ? text : std::nullopt;
}

/// Replaces `~` by the home folder, as huggingface_hub does.
fs::path with_home(const std::string& path, const Lookup& lookup) {
  if (path != "~" && !path.starts_with("~/")) return path;
  return lookup("HOME").value_or("/") + path.substr(1);
}

/// Returns the commit of a branch or tag when it was fetched; empty: unknown.
std::string commit_of(const fs::path& folder, const std::string& revision) {
  if (is_commit(revision)) return revision;
  std::ifstream file(folder / "refs" / revision);
  std::string commit;
  file >> commit;
  return is_commit(commit) ? commit : "";
}

/// Returns the path whose absence makes snapshot_in() find none.
fs::path missing_in(const fs::path& cache, const ModelName& model) {
  const fs::path folder = model_folder(cache, model);
  const std::string commit = commit_of(folder, model.revision);
  return commit.empty() ? folder / "refs" / model.revision : folder / "snapshots" / commit;
}

/// Returns what to try for a name that is in no cache. One in a folder that is here is a path of this machine.
std::string hint_for_missing(const std::string& name_or_path) {
  const fs::path path = name_or_path, folder = path.parent_path();
  std::error_code ignored;
  if (folder.empty() || !fs::is_directory(folder, ignored))
    return "gputrain fetch " + name_or_path + "; a plan needs no weights: --no-weights";
  std::vector<std::string> here;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, ignored))
    here.push_back((folder / entry.path().filename()).string());
  const std::string near = config::did_you_mean(name_or_path, here);
  return near.empty() ? "`ls " + folder.string() + "` shows what is there" : near;
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
  if (const fs::path snapshot = snapshot_in(cache_folder(), *model); !snapshot.empty()) return snapshot;
  throw Error(ExitCode::data, {.what = "no such file or folder, and no such model in the Hugging Face cache: there is "
                                       "no " +
                                       missing_in(cache_folder(), *model).string(),
                               .where = name_or_path,
                               .hint = hint_for_missing(name_or_path)});
}

fs::path pretrained_path_or_name(const std::string& name_or_path) {
  const auto model = name_of_model_not_here(name_or_path);
  if (!model) return name_or_path;
  const fs::path snapshot = snapshot_in(cache_folder(), *model);
  return snapshot.empty() ? fs::path(name_or_path) : snapshot;
}

fs::path snapshot_in(const fs::path& cache, const ModelName& model) {
  const fs::path folder = model_folder(cache, model);
  const std::string commit = commit_of(folder, model.revision);
  std::error_code ignored;
  return !commit.empty() && fs::is_directory(folder / "snapshots" / commit, ignored) ? folder / "snapshots" / commit
                                                                                     : fs::path();
}

std::string fetch_command_for(const fs::path& path) {
  constexpr std::string_view kModels = "models--";
  for (fs::path at = fs::absolute(path).lexically_normal(); at.has_relative_path(); at = at.parent_path()) {
    const fs::path folder = at.parent_path().parent_path();
    std::string name = folder.filename();
    if (at.parent_path().filename() != "snapshots" || !name.starts_with(kModels) || !is_commit(at.filename().string()))
      continue;
    name.erase(0, kModels.size());
    if (const auto dashes = name.find("--"); dashes != name.npos) name.replace(dashes, 2, "/");
    const bool is_newest = commit_of(folder, "main") == at.filename();
    const fs::path cache = folder.parent_path();
    return (cache == cache_folder() ? "" : "HF_HUB_CACHE=" + cache.string() + " ") + "gputrain fetch " + name +
           (is_newest ? "" : "@" + at.filename().string());
  }
  return {};
}

}  // namespace gputrain::hub
