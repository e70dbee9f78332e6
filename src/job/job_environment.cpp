#include "gputrain/job/job_environment.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <vector>

#include "gputrain/core/error.hpp"

namespace gputrain::app {
namespace {

/// Command-line arguments of this process.
std::vector<std::string> own_arguments() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> words;
  for (std::string word; std::getline(file, word, '\0');) words.push_back(word);
  return words;
}

}  // namespace

void take_environment(const std::map<std::string, std::string>& variables) {
  const auto is_set = [](const auto& variable) {
    const char* value = std::getenv(variable.first.c_str());
    return value != nullptr && variable.second == value;
  };
  if (std::ranges::all_of(variables, is_set)) return;
  for (const auto& [name, value] : variables) ::setenv(name.c_str(), value.c_str(), 1);
  auto words = own_arguments();
  std::vector<char*> pointers;
  for (auto& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  if (!words.empty()) ::execv("/proc/self/exe", pointers.data());
  throw Error(ExitCode::environment,
              {.what = std::string("cannot restart the program with the variables of env: ") + std::strerror(errno)});
}

}  // namespace gputrain::app
