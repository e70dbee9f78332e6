#include "eval_suite.hpp"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "gputrain/core/atomic_file.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/core/numbers.hpp"
#include "gputrain/device/working_copy.hpp"
#include "gputrain/generation/end_tokens.hpp"
#include "gputrain/generation/suite.hpp"
#include "gputrain/inspect/text_table.hpp"
#include "gputrain/job/run_folder.hpp"
#include "gputrain/launch/environment.hpp"
#include "gputrain/monitor/console.hpp"
#include "gputrain/monitor/format.hpp"
#include "gputrain/trained/model.hpp"

namespace gputrain::app {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
using generation::SuiteItem;
using generation::SuiteMetrics;

/// Returns the request for the model; a job stands for its run folder.
trained::Request model_request(const EvalRequest& request) {
  if (!fs::is_regular_file(request.job.file)) {
    if (!request.job.output_dir) return {.folder = request.job.file, .set = request.job.set};
    throw Error(ExitCode::usage, {.what = "--output-dir names the run folder of a job, but this is no job file",
                                  .where = request.job.file,
                                  .hint = "leave it out"});
  }
  const RunFolder folder{load_job(request.job).output_dir};
  if (fs::exists(folder.resolved())) return {.folder = folder.path, .set = request.job.set};
  throw Error(ExitCode::data,
              {.what = "there are no trained weights",
               .where = folder.path.string(),
               .hint = "train first (gputrain run), or name the folder of a run or of a published model"});
}

generation::SuiteModel suite_model(const trained::Model& opened) {
  generation::SuiteModel model{.model = *opened.built.model,
                               .tokenizer = *opened.tokenizer,
                               .limits = {.vocabulary = opened.vocabulary, .length = opened.longest_text},
                               .first_token = opened.tokenizer->end_token(),
                               .adds_special_tokens = opened.adds_special_tokens,
                               .end_tokens = opened.files.end_tokens,
                               .make_graphs = opened.make_graphs};
  if (opened.published) model.first_token = generation::first_token_of(opened.tokenizer_folder, *opened.published);
  return model;
}

struct SuiteReport {
  std::vector<generation::ItemScore> scores;
  std::map<std::string, SuiteMetrics> tasks;
  SuiteMetrics all;
};

SuiteReport report_of(const std::vector<SuiteItem>& items, const std::vector<generation::SuiteAnswer>& answers) {
  SuiteReport report;
  std::map<std::string, std::vector<generation::ItemScore>> by_task;
  for (size_t i = 0; i < items.size(); ++i) {
    report.scores.push_back(generation::score_of(items[i], answers[i]));
    if (!items[i].task.empty()) by_task[items[i].task].push_back(report.scores.back());
  }
  for (const auto& [task, scores] : by_task) report.tasks[task] = generation::metrics_of(scores);
  report.all = generation::metrics_of(report.scores);
  return report;
}

Json json_of(const SuiteMetrics& metrics) {
  Json object = Json::object();
  for (const auto& [name, metric] : metrics) {
    object[name] = {{"value", metric.value}};
    if (metric.stderr_of_mean) object[name]["stderr"] = *metric.stderr_of_mean;
    object[name]["count"] = metric.count;
  }
  return object;
}

void print_json(const EvalRequest& request, const SuiteReport& report) {
  Json object{{"model", request.job.file},
              {"suite", request.suite.file},
              {"count", report.scores.size()},
              {"tasks", Json::object()}};
  for (const auto& [task, metrics] : report.tasks) object["tasks"][task] = json_of(metrics);
  object["all"] = json_of(report.all);
  std::printf("%s\n", object.dump(2).c_str());
}

void print_table(const SuiteReport& report) {
  TextTable table("llrrr");
  table.add({"task", "metric", "value", "stderr", "count"});
  const auto add = [&](std::string task, const SuiteMetrics& metrics) {
    for (const auto& [name, metric] : metrics) {
      table.add({std::exchange(task, ""), name, monitor::significant(metric.value),
                 metric.stderr_of_mean ? monitor::significant(*metric.stderr_of_mean) : "", grouped(metric.count)});
    }
  };
  for (const auto& [task, metrics] : report.tasks) add(task, metrics);
  add("all", report.all);
  std::fputs(table.text().c_str(), stdout);
}

/// Writes a line for each item: the model's answer, and its scores.
void write_samples(const fs::path& path, const std::vector<SuiteItem>& items,
                   const std::vector<generation::SuiteAnswer>& answers, const SuiteReport& report) {
  std::string lines;
  for (size_t i = 0; i < items.size(); ++i) {
    Json line{{"line", items[i].line}};
    if (!items[i].task.empty()) line["task"] = items[i].task;
    if (std::holds_alternative<generation::Choices>(items[i].asked))
      line["loglikelihoods"] = answers[i].log_likelihoods;
    if (std::holds_alternative<generation::Question>(items[i].asked)) line["written"] = answers[i].written;
    for (const auto& [name, score] : report.scores[i]) line[name] = score;
    lines += line.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  }
  write_file_atomically(path, lines, ExitCode::environment);
}

void evaluate_suite(const EvalRequest& request, const std::vector<SuiteItem>& items, trained::Model& model,
                    monitor::Console& console) {
  comm::ProcessGroups& groups = model.context.groups;
  if (model.built.has_parts())
    throw Error(ExitCode::usage, {.what = "each rank answers its own part of a suite, and these share a model",
                                  .where = "parallel",
                                  .hint = "leave it out: each rank then has the whole model"});
  console.line("eval", request.job.file + " on " + counted(std::ssize(items), "line") + " of " + request.suite.file);
  const device::Reading reading(model.built.arena->working_copy());
  const auto answers = generation::answer_suite(
      items, suite_model(model), {.rows = request.suite.batch_size}, groups.control(), [&](int64_t done, int64_t all) {
        console.status({.label = "eval",
                        .share = static_cast<double>(done) / static_cast<double>(std::max<int64_t>(all, 1)),
                        .columns = {{grouped(done) + " of " + counted(all, "text")}}});
      });
  console.clear_status();
  groups.on_rank_zero(
      [&] {
        const SuiteReport report = report_of(items, answers);
        if (!request.suite.samples.empty()) write_samples(request.suite.samples, items, answers, report);
        request.json ? print_json(request, report) : print_table(report);
      },
      "report");
}

}  // namespace

int eval_suite(const EvalRequest& request) {
  std::vector<SuiteItem> items;
  std::optional<trained::Source> source;
  try {
    items = generation::read_suite(request.suite.file);
    source = trained::find(model_request(request));
    trained::check_continues_texts(*source, "eval --suite");
  } catch (const Error& mistake) {
    fail_before_rendezvous(mistake);
  }
  monitor::Console console(monitor::Console::detect(launch::read_environment().rendezvous.rank == 0 && !request.json));
  const auto model = trained::open(*std::move(source));
  try {
    evaluate_suite(request, items, *model, console);
    model->context.groups.control().barrier("end");
    model->context.groups.leave();
  } catch (const std::exception& failure) {
    fail(model->context, failure);
  }
  return 0;
}

}  // namespace gputrain::app
