#pragma once

#include <sys/prctl.h>
#include <sys/types.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <stdexcept>
#include <string>
#include <vector>

namespace gputrain::testing_support {

/// The form in which main() and exec() take texts, which must stay.
inline std::vector<char*> pointers_to(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

/// Starts a program from disk, with all its variables and its stdin, stdout and stderr. The kernel kills it when the
/// thread that started it has ended: a killed test leaves nothing.
inline pid_t spawn(std::vector<std::string> arguments, std::vector<std::string> variables,
                   const std::array<int, 3>& streams) {
  const auto words = pointers_to(arguments), environment = pointers_to(variables);
  const pid_t pid = ::fork();
  if (pid < 0) throw std::runtime_error("cannot start " + arguments[0]);
  if (pid > 0) return pid;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  for (size_t number = 0; number < streams.size(); ++number) ::dup2(streams[number], static_cast<int>(number));
  ::execvpe(words[0], words.data(), environment.data());
  ::_exit(127);
}

}  // namespace gputrain::testing_support
