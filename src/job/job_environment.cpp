#include "gputrain/job/job_environment.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <vector>

#include "gputrain/core/error.hpp"

namespace gputrain::app {
namespace {

std::vector<std::string> own_arguments() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> words;
  for (std::string word; std::getline(file, word, '\0');) words.push_back(word);
  return words;
}

bool is_set(const std::pair<const std::string, std::string>& variable) {
  const char* value = std::getenv(variable.first.c_str());
  return value != nullptr && variable.second == value;
}

/// Returns whether the variable names code to load: by the loader, the C library, CUDA, NCCL, OpenSSL or gputrain.
bool loads_code(const std::string& name) {
  constexpr std::array<std::string_view, 7> kNames{
      "GPUTRAIN_NVML",         "GCONV_PATH",   "LOCPATH",        "CUDA_INJECTION64_PATH",
      "NVTX_INJECTION64_PATH", "OPENSSL_CONF", "OPENSSL_MODULES"};
  const bool is_plugin = name.starts_with("NCCL_") && name.find("PLUGIN") != std::string::npos;
  return name.starts_with("LD_") || is_plugin || std::ranges::find(kNames, name) != kNames.end();
}

}  // namespace

void take_harmless_environment(const std::map<std::string, std::string>& variables) {
  for (const auto& variable : variables)
    if (loads_code(variable.first) && !is_set(variable))
      throw Error(ExitCode::usage,
                  {.what = "the job wants " + variable.first +
                           ", by which a file of its choice becomes part of this "
                           "program, and this command only looks at the job",
                   .where = "env." + variable.first,
                   .hint = "if you trust the job, set the variable to the same value before this command"});
  take_environment(variables);
}

void take_environment(const std::map<std::string, std::string>& variables) {
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
