// Command `gputrain init`: writes a job for data that it looks at, or a recipe.
#include <cctype>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "../commands.hpp"
#include "gputrain/core/atomic_file.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/core/lower_case.hpp"
#include "gputrain/core/printable.hpp"
#include "gputrain/core/wrap.hpp"
#include "gputrain/datasets/roles.hpp"
#include "gputrain/device/runtime.hpp"
#include "gputrain/job/job.hpp"
#include "gputrain/monitor/console.hpp"
#include "gputrain/setup/training_setup.hpp"
#include "jobs.hpp"
#include "recipes.hpp"

namespace gputrain::app {
namespace {

namespace fs = std::filesystem;

/// Derives a name for the run from that of the data, and of the model to begin with: jobs of other models are other
/// runs.
std::string name_of(const fs::path& data, const std::string& model) {
  const auto last_of = [](const fs::path& path) {
    const fs::path whole = fs::absolute(path).lexically_normal();
    return (whole.has_filename() ? whole : whole.parent_path()).filename();
  };
  std::string name = last_of(data).stem().string() + (model.empty() ? "" : "-" + last_of(model).string());
  for (char& c : name)
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '-';
  return name.empty() ? "training" : name;
}

/// Opens the data of a job as a run would.
std::shared_ptr<const data::Dataset> opened(const JobText& job, const std::string& output) {
  const fs::path file = output + ".part";
  write_file_atomically(file, job.text(), ExitCode::environment);
  struct Removed {
    fs::path file;
    ~Removed() {
      std::error_code ignored;
      fs::remove(file, ignored);
    }
  } const removed{file};
  return open_datasets(load_job({.file = file.string(), .set = {}, .output_dir = {}})).train;
}

/// Recognises a tar with folders of classes, or with train/ and others that have them inside.
FoundData inside_tar(const FoundData& whole, const fs::path& data, const std::string& output) {
  const std::string path = in_quotes(data.string());
  const auto opens = [&](const FoundData& found) {
    try {
      opened(image_job(found, {}, {}, 1), output);
      return true;
    } catch (const Error&) {
      return false;
    }
  };
  if (lower_case(data.extension().string()) != ".tar" || opens(whole)) return whole;
  const datasets::RoleNames roles(datasets::folders_within(data.string()));
  FoundData found{.train = "{path: " + path + ", format: tar, prefix: " + in_quotes(roles.train) + "}",
                  .val = "{split: 10%}"};
  if (roles.train.empty() || !opens(found)) return whole;
  for (const std::string& role : {roles.val, roles.test}) {
    if (role.empty()) continue;
    FoundData with_val = found;
    with_val.val = "{path: " + path + ", prefix: " + in_quotes(role) + "}";
    if (role == roles.val && !roles.test.empty())
      with_val.test = "{path: " + path + ", prefix: " + in_quotes(roles.test) + "}";
    if (opens(with_val)) return with_val;
  }
  return found;
}

/// Images of a job: their size if all have the same, and their number.
std::pair<data::ImageExtent, int64_t> measured(const FoundData& found, const std::string& output) {
  try {
    const auto images = opened(image_job(found, {}, {.height = 1, .width = 1}, 1), output);
    const auto& sizes = images->layout().input().sizes;
    return {{.height = sizes[0], .width = sizes[1]}, images->size()};
  } catch (const Error& failure) {
    if (failure.code() != ExitCode::usage) throw;  // images of different sizes
    return {{}, opened(image_job(found, {}, {}, 1), output)->size()};
  }
}

struct WrittenJob {
  JobText job;
  std::string advice = {};  // weights to begin with instead of none
};

WrittenJob job_for(const FoundData& found, const Begin& begin, const std::string& output) {
  if (found.is_text || found.records) return {text_job(found, begin)};
  const auto [size, samples] = measured(found, output);
  WrittenJob written{image_job(found, begin, size, samples)};
  const std::string weights = begin.base ? "" : weights_for(found, size, samples);
  if (!weights.empty())
    written.advice = "few images learn better from published weights: `gputrain fetch " + weights +
                     "`, then `gputrain init` again with --model " + weights;
  return written;
}

/// Opens the data of a job of records, and changes the job if they are few.
std::shared_ptr<const data::Dataset> opened_and_fitted(JobText& job, const FoundData& found, const std::string& output,
                                                       std::vector<std::string>& notes) {
  constexpr int64_t kFewRows = 100;
  auto data = opened(job, output);
  const std::string packing = ", packing: true";
  if (data->size() < kFewRows && job.text().find(packing) != std::string::npos) {
    job.replace("data", packing, "");  // a step learns from some texts, not from some rows full of them
    data = opened(job, output);
  }
  if (fit_to_few(job, found, data->size()))
    notes.push_back("these are few samples, so batches are smaller and epochs more than usual");
  return data;
}

/// Returns what was recognised, and how.
std::string found_text(const FoundData& found) {
  if (found.masks)
    return fmt::format(
        "; {} in {} masks that were looked at: check that",
        found.masks->are_black_and_white ? "black and white" : fmt::format("{} classes", found.masks->classes),
        found.masks->looked_at);
  if (!found.records) return "";
  const std::string& columns = found.records->columns;
  return "; " + in_words(found.records->kind) + (columns.empty() ? "" : " (" + columns + ")");
}

/// Returns lines of a comment.
std::string comment(const std::string& text) {
  std::string lines = "# " + wrapped(text, 116, 0);
  for (size_t at = 0; (at = lines.find('\n', at)) != std::string::npos; ++at) lines.insert(at + 1, "# ");
  return lines + "\n";
}

int print_recipes() {
  const size_t width = monitor::terminal_width();
  for (const Recipe& recipe : recipes()) {
    const std::string memory = recipe.memory();
    std::printf("%s%s\n    %s\n", std::string(recipe.name).c_str(), memory.empty() ? "" : ("  " + memory).c_str(),
                wrapped(recipe.summary(), width - 5, 4).c_str());
  }
  std::printf(
      "\ngputrain init --recipe NAME writes one; the memory is that of a step on one GPU, by `gputrain plan`\n");
  return 0;
}

void check_request(const InitRequest& request) {
  const int asked = (request.data.empty() ? 0 : 1) + (request.recipe.empty() ? 0 : 1) + (request.list ? 1 : 0);
  if (asked != 1)
    throw Error(ExitCode::usage, {.what = asked == 0 ? "nothing to write a job for" : "asks for several things at once",
                                  .where = "init",
                                  .hint = "one of: data, --recipe NAME, --list"});
  if (request.data.empty() && !(request.model + request.quantize).empty())
    throw Error(ExitCode::usage, {.what = "--model and --quantize are for data", .where = "init"});
  if (!request.list && fs::exists(request.output))
    throw Error(ExitCode::usage, {.what = "exists already", .where = request.output, .hint = "another --output"});
}

}  // namespace

int init_command(const InitRequest& request) {
  check_request(request);
  if (request.list) return print_recipes();
  monitor::Console console(monitor::Console::detect(true));
  if (!request.recipe.empty()) {
    write_file_atomically(request.output, std::string(recipe_named(request.recipe).text), ExitCode::environment);
    console.show("job", request.output + "  its head says which variables it needs");
    return 0;
  }
  Begin begin{.base = {}, .quantize = request.quantize, .has_gpu = device::gpu_count() > 0};
  if (!request.model.empty()) begin.base = base_model(request.model);
  const bool is_encoder = begin.base && begin.base->type == "bert";
  const FoundData found = inside_tar(look_at(request.data, is_encoder), request.data, request.output);
  auto [job, advice] = job_for(found, begin, request.output);
  job.set("name", name_of(request.data, request.model));
  std::vector<std::string> notes = notes_on(found, begin);
  const auto data = found.records ? opened_and_fitted(job, found, request.output, notes) : opened(job, request.output);
  const std::string what = data->describe() + found_text(found);
  std::string head = "# Written by `gputrain init " + printable(request.data) + "`: " + printable(what) + ".\n";
  if (!advice.empty()) head += comment(advice);
  for (const std::string& note : notes) head += comment(printable(note));
  head += "#   gputrain run " + printable(request.output) + "\n";
  write_file_atomically(request.output, head + job.text(), ExitCode::environment);
  console.show("data", what);
  if (!advice.empty()) console.show("weights", advice);
  for (const std::string& note : notes) console.show("note", note);
  console.show("job", request.output + "  a beginning; `gputrain run " + request.output + " --dry-run` checks it");
  return 0;
}

}  // namespace gputrain::app
