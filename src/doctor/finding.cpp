#include "gputrain/doctor/finding.hpp"

#include <algorithm>

#include <nlohmann/json.hpp>

namespace gputrain::doctor {

const char* word_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::warn:
      return "warn";
    case Verdict::bad:
      return "bad";
    default:
      return "ok";
  }
}

bool is_fit(const Findings& findings) {
  return std::ranges::none_of(findings, [](const Finding& each) { return each.verdict == Verdict::bad; });
}

nlohmann::json to_json(const Findings& findings) {
  auto list = nlohmann::json::array();
  for (const Finding& each : findings) {
    list.push_back({{"check", each.check},
                    {"verdict", word_of(each.verdict)},
                    {"text", each.text},
                    {"fix", each.fix},
                    {"facts", each.facts}});
  }
  return list;
}

Findings findings_of(const nlohmann::json& json) {
  Findings findings;
  for (const auto& each : json) {
    const std::string verdict = each.at("verdict");
    findings.push_back({.check = each.at("check"),
                        .verdict = verdict == "bad"    ? Verdict::bad
                                   : verdict == "warn" ? Verdict::warn
                                                       : Verdict::ok,
                        .text = each.at("text"),
                        .fix = each.at("fix"),
                        .facts = each.at("facts").get<std::map<std::string, std::string>>()});
  }
  return findings;
}

}  // namespace gputrain::doctor
