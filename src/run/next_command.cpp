#include "next_command.hpp"

#include <cerrno>
#include <filesystem>
#include <string_view>

#include "gputrain/job/run_folder.hpp"
#include "gputrain/records/conversations.hpp"
#include "gputrain/setup/signature.hpp"
#include "gputrain/trained/model.hpp"

namespace gputrain::app {
namespace {

namespace fs = std::filesystem;

/// Returns a word as a shell reads it.
std::string shell_word(const std::string& word) {
  constexpr std::string_view kSafe = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:,@%+=";
  if (!word.empty() && word.find_first_not_of(kSafe) == word.npos) return word;
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

/// Returns the program's name as the user has typed it.
std::string program() { return shell_word(program_invocation_name); }

/// Returns the command for the job of a request. `instead`: a setting in place of one that the request may have.
std::string with_job(const std::string& verb, const JobRequest& request, const std::string& instead = "") {
  std::string command = program() + " " + verb + " " + shell_word(request.file);
  const std::string replaced = instead.substr(0, instead.find('=') + 1);
  for (const std::string& setting : request.set) {
    const bool is_replaced = !replaced.empty() && setting.starts_with(replaced);
    if (!is_replaced && !setting.starts_with("checkpoint.resume=")) command += " --set " + shell_word(setting);
  }
  if (!instead.empty()) command += " --set " + shell_word(instead);
  if (request.output_dir) command += " --output-dir " + shell_word(*request.output_dir);
  return command;
}

/// Returns the path of the data to try the model on: that of validation, or else of training.
fs::path data_of(const data::DataSpec& spec) {
  return spec.val && spec.val->path ? fs::path(*spec.val->path) : fs::path(spec.train.path);
}

/// Returns the rest of `gputrain predict RUN`; empty: it does not read data of this format.
std::string to_predict(const Job& job, const data::Signature& signature) {
  const data::DataSpec& spec = job.spec().data;
  const fs::path data = data_of(spec);
  std::error_code ignored;
  if (spec.train.format.name == "imagefolder") return " " + shell_word(data.string());
  if (spec.train.format.name == "segmentation" && fs::is_directory(data / "images", ignored))
    return " " + shell_word((data / "images").string()) + " --masks " + shell_word((job.output_dir / "masks").string());
  return signature.reads_texts() && fs::is_regular_file(data, ignored) ? " " + shell_word(data.string()) : "";
}

}  // namespace

std::string command_to_go_on(const JobRequest& request, bool resumes, const std::string& setting) {
  return with_job("run", request, setting) + (resumes ? "" : " --set checkpoint.resume=auto");
}

std::string command_to_use(const Job& job, const JobRequest& request, const JobDatasets& datasets) {
  const data::Signature signature = signature_of(job, datasets);
  const std::string verb = trained::verb_for(signature), run = " " + shell_word(job.output_dir.string());
  if (verb == "gputrain generate")
    return program() + " generate" + run + (records::has_conversations(*datasets.train) ? " --chat" : "");
  std::error_code ignored;
  if (const fs::path data = data_of(job.spec().data);
      verb == "gputrain embed" && signature.reads_texts() && fs::is_regular_file(data, ignored))
    return program() + " embed" + run + " " + shell_word(data.string()) + " --output " +
           shell_word((job.output_dir / "vectors.npy").string());
  if (verb == "gputrain predict") {
    const std::string rest = to_predict(job, signature);
    if (!rest.empty()) return program() + " predict" + run + rest;
  }
  return datasets.val ? with_job("eval", request) : "";
}

}  // namespace gputrain::app
