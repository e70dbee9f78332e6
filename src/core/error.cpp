#include "gputrain/core/error.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "gputrain/core/printable.hpp"
#include "gputrain/core/secrets.hpp"

namespace gputrain {
namespace {

/// Makes texts fit to show: file names and other text from outside may hold any bytes, and addresses a password.
Error::Parts fit_to_show(const Error::Parts& parts) {
  const auto fit = [](const std::string& text, const char* kept) { return without_url_secrets(printable(text, kept)); };
  return {.what = fit(parts.what, "\n\t"), .where = fit(parts.where, ""), .hint = fit(parts.hint, "\n\t")};
}

std::string compose(const Error::Parts& parts) {
  std::string text;
  if (!parts.where.empty()) text += parts.where + ": ";
  text += parts.what;
  if (!parts.hint.empty()) text += "\n  try: " + parts.hint;
  return text;
}

}  // namespace

bool allows_restart(ExitCode code) {
  using enum ExitCode;
  constexpr std::array kInVain{usage, data, refused, checkpoint, environment, no_restart, interrupted, terminated};
  return std::ranges::find(kInVain, code) == kInVain.end();
}

Error::Error(ExitCode code, Parts parts)
    : std::runtime_error(compose(parts = fit_to_show(parts))), code_(code), parts_(std::move(parts)) {}

ReportedElsewhere::ReportedElsewhere(const Error& error) : Error(error) {}

void assertion_failed(const char* condition, const char* file, int line, const std::string& message) {
  std::string text =
      std::string(file) + ":" + std::to_string(line) + ": internal error: " + message + " (" + condition + ")";
  throw std::logic_error(text);
}

}  // namespace gputrain
