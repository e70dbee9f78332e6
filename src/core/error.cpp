#include "gputrain/core/error.hpp"

#include <utility>

#include "gputrain/core/secrets.hpp"

namespace gputrain {
namespace {

std::string compose(const Error::Parts& parts) {
  std::string text;
  if (!parts.where.empty()) text += parts.where + ": ";
  text += parts.what;
  if (!parts.hint.empty()) text += "\n  try: " + parts.hint;
  return text;
}

Error::Parts without_secrets(const Error::Parts& parts) {
  return {without_url_secrets(parts.what), without_url_secrets(parts.where), without_url_secrets(parts.hint)};
}

}  // namespace

Error::Error(ExitCode code, Parts parts)
    : std::runtime_error(compose(without_secrets(parts))), code_(code), parts_(without_secrets(parts)) {}

ReportedElsewhere::ReportedElsewhere(const Error& error) : Error(error) {}

void assertion_failed(const char* condition, const char* file, int line, const std::string& message) {
  std::string text =
      std::string(file) + ":" + std::to_string(line) + ": internal error: " + message + " (" + condition + ")";
  throw std::logic_error(text);
}

}  // namespace gputrain
