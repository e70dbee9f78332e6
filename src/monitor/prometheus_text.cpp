#include "prometheus_text.hpp"

#include <cmath>

#include <fmt/format.h>

#include "gputrain/monitor/measurements.hpp"

namespace gputrain::monitor {
namespace {

std::string escaped(const std::string& text, bool quotes) {
  std::string out;
  for (const char c : text) {
    if (c == '\\') {
      out += "\\\\";
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '"' && quotes) {
      out += "\\\"";
    } else {
      out += c;
    }
  }
  return out;
}

std::string number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  return fmt::format("{}", value);
}

}  // namespace

void PrometheusText::add(const std::string& name, double value, const Labels& labels) {
  const PrometheusName known = prometheus_name(name);
  Family& family = families_[known.name];
  if (family.head.empty()) {
    family.head = "# HELP " + known.name + " " + escaped(known.help, false) + "\n# TYPE " + known.name +
                  (known.kind == MeasurementKind::counter ? " counter\n" : " gauge\n");
  }
  std::string all;
  for (const Labels& part : {common_, labels})
    for (const auto& [label, text] : part) all += (all.empty() ? "" : ",") + label + "=\"" + escaped(text, true) + "\"";
  family.samples += known.name + "{" + all + "} " + number(value * known.factor) + "\n";
}

std::string PrometheusText::text() const {
  std::string text;
  for (const auto& [name, family] : families_) text += family.head + family.samples;
  return text;
}

}  // namespace gputrain::monitor
