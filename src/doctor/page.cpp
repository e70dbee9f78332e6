#include "gputrain/doctor/page.hpp"

#include <algorithm>

#include "gputrain/core/numbers.hpp"
#include "gputrain/core/printable.hpp"
#include "gputrain/core/wrap.hpp"

namespace gputrain::doctor {
namespace {

constexpr size_t kIndent = 13;  // label, verdict

std::string padded(std::string text, size_t width) {
  text.resize(std::max(width, text.size()), ' ');
  return text;
}

std::string coloured(const std::string& text, Verdict verdict) {
  const char* colour = verdict == Verdict::bad ? "\x1b[1;31m" : verdict == Verdict::warn ? "\x1b[33m" : "\x1b[32m";
  return colour + text + "\x1b[0m";
}

}  // namespace

std::string page(const Findings& findings, size_t columns, bool colour) {
  const size_t room = std::max(columns, kIndent + 20) - kIndent;
  std::string text;
  for (const Finding& each : findings) {
    const std::string label = padded(printable(each.check), 7), verdict = padded(word_of(each.verdict), 4);
    text += colour ? "\x1b[1m" + label + "\x1b[0m " + coloured(verdict, each.verdict) : label + " " + verdict;
    text += " " + wrapped(printable(each.text), room, kIndent) + "\n";
    if (!each.fix.empty())
      text += std::string(kIndent, ' ') + "try: " + wrapped(printable(each.fix), room - 5, kIndent + 5) + "\n";
  }
  return text;
}

std::string summary_line(const Findings& findings, bool trains_on_cpu) {
  const auto count = [&](Verdict verdict) { return std::ranges::count(findings, verdict, &Finding::verdict); };
  const auto bad = count(Verdict::bad), warnings = count(Verdict::warn);
  std::string text = bad > 0 ? "unfit: " + counted(bad, "finding") + " must be fixed" : "fit to train";
  if (bad == 0 && trains_on_cpu) text += " on the CPU";
  if (warnings > 0) text += ", " + counted(warnings, "warning");
  return text;
}

}  // namespace gputrain::doctor
