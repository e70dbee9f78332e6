// The processes that a program under test has started, however deep, found by a variable they inherit.
#pragma once

#include <sys/types.h>

#include <map>
#include <string>
#include <vector>

namespace gputrain::testing_support {

class ProcessFamily {
 public:
  /// A mark for the environment of the program, different for each object.
  ProcessFamily();
  ~ProcessFamily();  // kills what is left
  ProcessFamily(const ProcessFamily&) = delete;
  ProcessFamily& operator=(const ProcessFamily&) = delete;

  std::map<std::string, std::string> environment() const { return {{"GPUTRAIN_TEST_MARK", mark_}}; }
  const std::string& mark() const noexcept { return mark_; }

  /// The process of a rank, or of an agent (`role` "agent"), waited for until it exists; throws after ten seconds.
  pid_t rank(int number) const;
  pid_t agent() const;
  /// From now on ends_within() knows everyone who lives at this moment.
  void remember();
  /// Whether all who are remembered, and whom they have started meanwhile, are gone within that time.
  bool ends_within(double seconds);
  /// Who lives now, each with its command.
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
