#include "gputrain/inspect/data_audit.hpp"

#include <algorithm>
#include <exception>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "gputrain/core/error.hpp"
#include "gputrain/core/numbers.hpp"
#include "gputrain/resume/record.hpp"

namespace gputrain::app {
namespace {

using Finding = DataAudit::Finding;

/// Step of one attempt, and the data that training had used by then, according to the ledger.
struct Mark {
  int64_t step = 0;
  data::SampleUsage used;
  bool is_rollback = false;  // the data since the previous mark was skipped on purpose
};

/// Part of an attempt from its start to its end or to a rollback, after which an Attempt with the same number starts.
struct Attempt {
  int64_t number = 1;
  data::OrderFacts order;
  std::string content = {};                         // hash of the data's content; empty: not known
  std::vector<Mark> marks;                          // start, checkpoints, end
  std::vector<int64_t> skipped;                     // steps without an update
  std::optional<data::OrderFacts> order_elsewhere;  // order of the other run, if it started from that run's checkpoint
  data::Position position_elsewhere = {};           // position of that checkpoint
};

/// Notes the position in the data of the attempt's first mark, if the attempt started from another run's checkpoint.
void note_elsewhere(const nlohmann::json& line, Attempt& attempt) {
  const int64_t step = line.at("step").get<int64_t>();
  data::OrderFacts order = attempt.order;
  order.global_batch = line.at("from_elsewhere").at("global_batch").get<int64_t>();
  order.first_step = 0;
  order.from = {};
  attempt.position_elsewhere = data::position_after(attempt.order, step);
  attempt.order_elsewhere = order;
}

std::vector<Attempt> attempts_of(const std::vector<nlohmann::json>& lines) {
  std::vector<Attempt> attempts;
  for (const auto& line : lines) {
    const std::string kind = line.at("kind").get<std::string>();
    if (kind == "attempt") {
      attempts.push_back({.number = line.at("attempt").get<int64_t>(),
                          .order = order_from_json(line.at("order")),
                          .content = line.value("content", "")});
      if (line.contains("from_elsewhere")) note_elsewhere(line, attempts.back());
    }
    if (attempts.empty()) continue;
    Attempt& attempt = attempts.back();
    if (kind == "nonfinite" && line.at("action") == "skip") attempt.skipped.push_back(line.at("step").get<int64_t>());
    if (kind != "attempt" && kind != "checkpoint" && kind != "end" && kind != "rollback") continue;
    const Mark mark{line.at("step").get<int64_t>(), usage_from_json(line.at("data")), kind == "rollback"};
    if (mark.is_rollback) {
      const Mark back{line.at("back_to").get<int64_t>(), mark.used};
      attempts.push_back({.number = attempt.number,
                          .order = attempt.order,
                          .content = attempt.content,
                          .marks = {back, mark},
                          .skipped = {}});
    } else {
      attempt.marks.push_back(mark);
    }
  }
  return attempts;
}

/// Removes the attempts before the last start from a checkpoint of another run: they do not belong to that training.
void leave_before_elsewhere(std::vector<Attempt>& attempts) {
  const auto last = std::find_if(attempts.rbegin(), attempts.rend(),
                                 [](const Attempt& attempt) { return attempt.order_elsewhere.has_value(); });
  if (last != attempts.rend()) attempts.erase(attempts.begin(), std::prev(last.base()));
}

/// Removes the marks of each attempt that lie after the start of a later attempt: that work was discarded.
void cut_to_what_counts(std::vector<Attempt>& attempts) {
  int64_t end = INT64_MAX;
  for (auto attempt = attempts.rbegin(); attempt != attempts.rend(); ++attempt) {
    std::erase_if(attempt->marks, [&](const Mark& mark) { return mark.step > end; });
    std::erase_if(attempt->skipped, [&](int64_t step) { return step > end; });
    if (!attempt->marks.empty()) end = std::min(end, attempt->marks.front().step);
  }
}

/// Returns the position of training at the start of the attempt, after steps in the order `before`.
data::Position position_before(const Attempt& attempt, const data::OrderFacts& before) {
  if (attempt.order_elsewhere) return attempt.position_elsewhere;
  return data::position_after(before, attempt.marks.front().step);
}

/// Returns what training should have used from one mark to the attempt's next one; `before`: its order until then.
data::SampleUsage expected_between(const Attempt& attempt, const std::optional<data::OrderFacts>& before,
                                   const Mark& from, const Mark& to) {
  if (to.is_rollback) return {};
  if (&to != &attempt.marks.front()) return data::expected_usage(attempt.order, from.step, to.step);
  if (before && !attempt.order_elsewhere) return data::expected_usage(*before, from.step, to.step);
  const data::OrderFacts order = attempt.order_elsewhere.value_or(attempt.order);
  return data::usage_before(order, position_before(attempt, order));
}

/// Compares the samples used between two marks with those that the sample order gives for these steps.
std::optional<Finding> compare(const Attempt& attempt, const std::optional<data::OrderFacts>& before, const Mark& from,
                               const Mark& to) {
  const int64_t samples = to.used.samples - from.used.samples, steps = to.step - from.step;
  if (!to.is_rollback && steps > std::max<int64_t>(samples, 0)) {  // wrong for any sample order
    return Finding{.attempt = attempt.number,
                   .begin = from.step,
                   .end = to.step,
                   .what = "fewer samples used than steps were taken"};
  }
  const data::SampleUsage expected = expected_between(attempt, before, from, to);
  if (samples == expected.samples && to.used.fingerprint - from.used.fingerprint == expected.fingerprint) return {};
  Finding finding{.attempt = attempt.number, .begin = from.step, .end = to.step, .what = {}};
  const int64_t difference = samples - expected.samples;
  if (difference > 0) finding.what = counted(difference, "sample") + " used more than once";
  if (difference < 0) finding.what = counted(-difference, "sample") + " left out";
  if (difference == 0) finding.what = "as many samples as expected, but not those";
  return finding;
}

/// Finds an attempt that does not continue at the position of training, or uses other data within an epoch: the samples
/// used so far and those of the new order do not form a whole epoch.
std::optional<Finding> broken_epoch(const data::OrderFacts& before, const Attempt& attempt) {
  const int64_t step = attempt.marks.front().step;
  const data::OrderFacts& now = attempt.order;
  data::OrderFacts going_on = now;  // may drop the rest of an epoch
  going_on.first_step = step;
  going_on.from = position_before(attempt, before);
  const bool goes_on = data::position_after(now, step) == data::position_after(going_on, step);
  if (goes_on && (going_on.from.samples == 0 || before.samples == now.samples)) return {};
  std::string change;
  const auto note = [&](const char* name, int64_t old_value, int64_t new_value) {
    if (old_value != new_value)
      change += fmt::format("{}{} {} -> {}", change.empty() ? "" : ", ", name, old_value, new_value);
  };
  note("samples", before.samples, now.samples);
  note("global batch", before.global_batch, now.global_batch);
  if (change.empty()) change = "another place in the data";
  return Finding{.attempt = attempt.number,
                 .begin = step,
                 .end = step,
                 .what = "changed within an epoch (" + change + "), whose samples are not used once each"};
}

void note(DataAudit& audit, std::optional<Finding> finding) {
  if (finding) audit.findings.push_back(std::move(*finding));
}

/// Finds data that was rewritten within an epoch, with as many samples.
void note_other_content(const std::vector<Attempt>& attempts, DataAudit& audit) {
  const Attempt* before = nullptr;  // the last attempt that counts
  for (const Attempt& attempt : attempts) {
    if (attempt.marks.empty() || attempt.marks.back().step == attempt.marks.front().step) continue;
    const Attempt* then = std::exchange(before, &attempt);
    if (then == nullptr || attempt.order_elsewhere || then->order.samples != attempt.order.samples) continue;
    if (then->content.empty() || attempt.content.empty() || then->content == attempt.content) continue;
    const int64_t step = attempt.marks.front().step;
    if (data::position_after(attempt.order, step).samples == 0) continue;  // a new epoch
    note(audit, Finding{.attempt = attempt.number,
                        .begin = step,
                        .end = step,
                        .what = "the data was written anew within an epoch, whose samples are not used once each"});
  }
}

DataAudit audit_whole(const monitor::LedgerContent& ledger) {
  std::vector<Attempt> attempts = attempts_of(ledger.lines);
  DataAudit audit{.problems = ledger.problems};
  audit.attempts = attempts_in(ledger.lines);
  for (const Attempt& attempt : attempts) audit.discarded += attempt.marks.back().step - attempt.marks.front().step;
  leave_before_elsewhere(attempts);
  cut_to_what_counts(attempts);
  Mark last;                              // training starts at step 0, with nothing used
  std::optional<data::OrderFacts> order;  // sample order at `last`
  for (const Attempt& attempt : attempts) {
    audit.steps_skipped += static_cast<int64_t>(attempt.skipped.size());
    if (attempt.marks.empty()) continue;
    audit.drops_some |= attempt.order.drop_last && attempt.order.samples % attempt.order.global_batch != 0;
    const bool counts = attempt.marks.back().step > attempt.marks.front().step;
    const auto& before = attempt.order_elsewhere ? attempt.order_elsewhere : order;
    if (before && counts) note(audit, broken_epoch(*before, attempt));
    for (const Mark& mark : attempt.marks) {
      note(audit, compare(attempt, order, last, mark));
      if (mark.is_rollback) {
        ++audit.rollbacks;
        audit.steps_passed_over += mark.step - last.step;
        audit.passed_over.add(data::expected_usage(attempt.order, last.step, mark.step));
      }
      last = mark;
    }
    order = attempt.order;
  }
  note_other_content(attempts, audit);
  audit.steps = last.step;
  audit.discarded -= last.step - audit.steps_passed_over;
  audit.used = last.used;
  if (!attempts.empty()) {
    const data::OrderFacts& now = attempts.back().order;
    const auto [epoch, samples] = data::position_after(now, last.step);
    audit.epochs = static_cast<double>(epoch) + static_cast<double>(samples) / static_cast<double>(now.samples);
  }
  return audit;
}

}  // namespace

DataAudit audit_of(const monitor::LedgerContent& ledger, const std::filesystem::path& path) {
  const auto told = [&](const std::string& reason) {
    const std::string what = "the ledger cannot be understood: " + reason;
    if (ledger.problems.empty()) throw Error(ExitCode::data, {.what = what, .where = path.string()});
    DataAudit audit{.findings = {}, .problems = ledger.problems};
    audit.problems.push_back(what);
    return audit;
  };
  try {
    return audit_whole(ledger);
  } catch (const Error& error) {  // an impossible sample order
    return told(error.what());
  } catch (const std::logic_error&) {  // invalid digits
    return told("a line has a value that no run writes");
  } catch (const nlohmann::json::exception&) {
    return told("a line lacks a value, or has another kind of value than a run writes");
  }
}

}  // namespace gputrain::app
