#include "gputrain/datasets/roles.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <set>

#include "gputrain/core/lower_case.hpp"
#include "gputrain/data/read_only_file.hpp"
#include "tar_index.hpp"

namespace gputrain::datasets {
namespace {

constexpr std::array<std::string_view, 9> kFillers{"set",  "data",   "dataset", "images", "imgs",
                                                   "pics", "photos", "split",   "folder"};

bool is_filler(std::string_view word) { return std::ranges::find(kFillers, word) != kFillers.end(); }

/// Returns the role of a word, also with a filler at its end: "trainset".
std::optional<data::Split> role_of_word(std::string_view word) {
  for (const std::string_view filler : kFillers)
    if (word.size() > filler.size() && word.ends_with(filler))
      return role_of_word(word.substr(0, word.size() - filler.size()));
  for (const std::string_view train : {"train", "training", "trn"})
    if (word == train) return data::Split::train;
  for (const std::string_view val : {"val", "valid", "validation", "validate", "dev", "devel", "eval", "evaluation"})
    if (word == val) return data::Split::val;
  for (const std::string_view test : {"test", "testing", "tst", "holdout"})
    if (word == test) return data::Split::test;
  return std::nullopt;
}

/// Splits a name into words in lower case, without digits and punctuation.
std::vector<std::string> words_of(std::string_view name) {
  std::vector<std::string> words{""};
  for (const char c : lower_case(name)) {
    if (std::isalpha(static_cast<unsigned char>(c)) != 0) {
      words.back() += c;
    } else if (!words.back().empty()) {
      words.emplace_back();
    }
  }
  if (words.back().empty()) words.pop_back();
  return words;
}

}  // namespace

std::optional<data::Split> role_of_name(std::string_view name) {
  std::vector<std::string> words = words_of(name);
  while (words.size() > 1 && is_filler(words.back())) words.pop_back();
  // "seg_train" has a role, "train_station" none.
  return words.empty() ? std::nullopt : role_of_word(words.back());
}

RoleNames::RoleNames(const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    const auto role = role_of_name(name);
    if (!role) continue;
    std::string& place = *role == data::Split::train ? train : *role == data::Split::val ? val : test;
    if (place.empty()) place = name;
  }
}

std::vector<std::string> folders_within(const std::string& path) {
  std::set<std::string> folders;
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    for (const auto& entry : std::filesystem::directory_iterator(path, ignored))
      if (entry.is_directory(ignored)) folders.insert(entry.path().filename().string());
  } else {
    visit_tar(data::ReadOnlyFile(path), [&](TarEntry&& entry) {
      const size_t slash = entry.name.find('/');
      if (slash != std::string::npos) folders.insert(entry.name.substr(0, slash));
    });
  }
  return {folders.begin(), folders.end()};
}

}  // namespace gputrain::datasets
