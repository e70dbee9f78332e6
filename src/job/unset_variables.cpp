#include "gputrain/job/unset_variables.hpp"

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

namespace gputrain::app {
namespace {

/// Returns the file in which the job stands, "" if it does not stand in one: a place is "job.yaml:3:5".
std::string file_of(const Job& job) {
  std::string place = job.loaded.origin("schema");
  for (int i = 0; i < 2; ++i) {
    const size_t colon = place.rfind(':');
    if (colon == std::string::npos) return {};
    place.resize(colon);
  }
  return place;
}

}  // namespace

Error with_unset_variable(const Job& job, const Error& error) {
  std::ifstream file(file_of(job));
  std::ostringstream content;
  content << file.rdbuf();
  const std::string text = content.str(), begin = "${env:", middle = ":-";
  for (size_t at = 0; (at = text.find(begin, at)) != std::string::npos;) {
    at += begin.size();
    const size_t end = text.find('}', at), dash = text.find(middle, at);
    if (end == std::string::npos || dash == std::string::npos || dash > end) continue;
    const std::string name = text.substr(at, dash - at), fallback = text.substr(dash + 2, end - dash - 2);
    const char* value = std::getenv(name.c_str());
    const bool is_set = value != nullptr && *value != '\0';
    if (is_set || fallback.empty() || error.parts().where.find(fallback) == std::string::npos) continue;
    Error::Parts parts = error.parts();
    parts.hint = "set the variable " + name + ", whose default this is: " + name + "=... before the command";
    return {error.code(), parts};
  }
  return error;
}

}  // namespace gputrain::app
