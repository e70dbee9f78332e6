#include "gputrain/launch/host_command.hpp"

#include <unistd.h>

#include <algorithm>
#include <string_view>

#include "gputrain/core/error.hpp"
#include "gputrain/core/process.hpp"

namespace gputrain::launch {
namespace {

bool is_plain_word(const std::string& word) {
  const auto is_plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("/._+-").find(c) != std::string_view::npos;
  };
  return !word.empty() && std::ranges::all_of(word, is_plain);
}

void refuse_words_for_shells(const std::string& program, const std::vector<std::string>& arguments) {
  constexpr const char* kHint = "only letters, digits and / . _ + - are possible";
  if (!is_plain_word(program)) {
    throw Error(ExitCode::usage, {.what = "the program's path cannot be given to a shell on another host",
                                  .where = program,
                                  .hint = "install it at a path that has only letters, digits and / . _ + -"});
  }
  for (const std::string& word : arguments) {
    if (!is_plain_word(word))
      throw Error(ExitCode::usage,
                  {.what = "this cannot be given to a shell on another host", .where = word, .hint = kHint});
  }
}

}  // namespace

std::vector<std::string> own_environment() {
  std::vector<std::string> all;
  for (char** entry = environ; *entry != nullptr; ++entry) all.emplace_back(*entry);
  return all;
}

std::vector<std::string> command_on(const Host& host, const std::vector<std::string>& arguments) {
  std::vector<std::string> words;
  const std::string program = own_program();
  if (!host.is_here()) {
    refuse_words_for_shells(program, arguments);
    std::string name = host.name;
    std::erase_if(name, [](char c) { return c == '[' || c == ']'; });
    words = {"ssh",
             "-T",
             "-x",
             "-o",
             "BatchMode=yes",
             "-o",
             "StrictHostKeyChecking=yes",
             "-o",
             "ConnectTimeout=10",
             "-o",
             "ControlPath=none",
             "--",
             name};
  }
  words.push_back(program);
  words.insert(words.end(), arguments.begin(), arguments.end());
  return words;
}

}  // namespace gputrain::launch
