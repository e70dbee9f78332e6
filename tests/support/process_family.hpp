// All descendants of a program under test, found by an environment variable that they inherit.
#pragma once

#include <sys/types.h>

#include <map>
#include <string>
#include <vector>

namespace gputrain::testing_support {

class ProcessFamily {
 public:
  /// A mark for the program's environment, different for each object.
  ProcessFamily();
  ~ProcessFamily();  // kills the remaining processes
  ProcessFamily(const ProcessFamily&) = delete;
  ProcessFamily& operator=(const ProcessFamily&) = delete;

  std::map<std::string, std::string> environment() const { return {{"GPUTRAIN_TEST_MARK", mark_}}; }
  const std::string& mark() const noexcept { return mark_; }

  /// Waits for the process of a rank or agent (`role` "agent"); throws after ten seconds.
  pid_t rank(int number) const;
  pid_t agent() const;
  /// Remembers the processes that live now, for ends_within().
  void remember();
  /// Whether all remembered processes and their new children end within this time.
  bool ends_within(double seconds);
  /// The processes that live now, each with its command.
  std::vector<std::string> living() const;

 private:
  struct Process {
    pid_t id;
    std::map<std::string, std::string> variables;
    std::string command;
  };
  std::vector<Process> find() const;

  std::string mark_;
  std::vector<int> remembered_;  // pidfds
};

}  // namespace gputrain::testing_support
