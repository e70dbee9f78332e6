// The finding of a check of a machine.
#pragma once

#include <map>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace gputrain::doctor {

enum class Verdict { ok, warn, bad };
const char* word_of(Verdict verdict);

struct Finding {
  std::string check;  // the first column: "driver", "gpu 0"; at most 7 characters
  Verdict verdict = Verdict::ok;
  std::string text;
  std::string fix = {};                           // a command, or what to do; may be empty
  std::map<std::string, std::string> facts = {};  // facts that should be equal on all hosts: "driver" -> "580.65.06"
};
using Findings = std::vector<Finding>;

/// Returns whether nothing is bad.
bool is_fit(const Findings& findings);

nlohmann::json to_json(const Findings& findings);
/// Throws nlohmann::json::exception if `json` is something else.
Findings findings_of(const nlohmann::json& json);

}  // namespace gputrain::doctor
