// The mistakes in a job, all at once, each with its place and a hint.
#pragma once

#include <string>
#include <vector>

#include "gputrain/config/node.hpp"
#include "gputrain/core/error.hpp"

namespace gputrain::config {

struct Problem {
  SourceLocation location;
  std::string what;       // the fact, one sentence without a final full stop
  std::string hint = {};  // what to write or try; may have several lines
};

/// load() throws this with all mistakes; exit code `usage`. what() is the whole page without colour.
class SpecError : public Error {
 public:
  explicit SpecError(std::vector<Problem> problems);
  ~SpecError() override;

  const std::vector<Problem>& problems() const noexcept { return problems_; }

  /// Returns the page for the user: a head line, then each problem with an excerpt and a hint.
  std::string render(bool colour) const;

 private:
  struct Sorted {};
  SpecError(Sorted, std::vector<Problem> problems);

  std::vector<Problem> problems_;
};

}  // namespace gputrain::config
