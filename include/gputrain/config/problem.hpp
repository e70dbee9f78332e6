// What is wrong with a job: all of it at once, each with its place and what to write instead.
#pragma once

#include <string>
#include <vector>

#include "gputrain/config/node.hpp"
#include "gputrain/core/error.hpp"

namespace gputrain::config {

struct Problem {
  Place place;
  std::string what;       // the fact, one sentence without a final full stop
  std::string hint = {};  // what to write or try; may have several lines
};

/// Thrown by load() with everything that is wrong; exit code `usage`. what() is the whole page without colour.
class SpecError : public Error {
 public:
  SpecError(std::string subject, std::vector<Problem> problems);
  ~SpecError() override;

  const std::vector<Problem>& problems() const noexcept { return problems_; }

  /// The page a user reads: a head line, then each problem with an excerpt and what to try.
  std::string render(bool colour) const;

 private:
  struct Sorted {};
  SpecError(Sorted, std::string subject, std::vector<Problem> problems);

  std::string subject_;
  std::vector<Problem> problems_;
};

}  // namespace gputrain::config
