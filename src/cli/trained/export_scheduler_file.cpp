// Writes the file with which a scheduler runs a job: `gputrain export JOB --format slurm`.
#include "export_scheduler_file.hpp"

#include <cstdio>
#include <filesystem>
#include <utility>

#include "gputrain/core/atomic_file.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/export/scheduler_files.hpp"

namespace gputrain::app {
namespace {

/// Throws Error(usage) for options of another kind of format.
void refuse_options(const ExportRequest& request, const std::vector<std::pair<const char*, bool>>& options,
                    const std::string& hint) {
  for (const auto& [option, is_given] : options)
    if (is_given)
      throw Error(ExitCode::usage,
                  {.what = std::string(option) + " is nothing that --format " + request.format + " uses",
                   .where = option,
                   .hint = "leave it out; " + hint});
}

}  // namespace

bool is_for_scheduler(const ExportRequest& request) {
  const bool is_known = schedulers().find(request.format) != nullptr;
  if (is_known)
    refuse_options(request,
                   {{"--dtype", !request.dtype.empty()},
                    {"--merge", request.merge},
                    {"--base", request.has_base},
                    {"--tokenizer", !request.tokenizer.empty()}},
                   "it is for formats of trained models");
  else
    refuse_options(request, {{"--image", !request.image.empty()}, {"--volume", !request.volumes.empty()}},
                   "it is for files of schedulers, such as --format k8s");
  return is_known;
}

int export_scheduler_file(const ExportRequest& request) {
  std::error_code ignored;
  if (!request.out.empty() && std::filesystem::equivalent(request.folder, request.out, ignored))
    throw Error(ExitCode::usage, {.what = "the export would overwrite the job that it reads",
                                  .where = request.out,
                                  .hint = "the name of a new file"});
  const std::string text = scheduler_file({.job = {.file = request.folder, .set = request.set, .output_dir = {}},
                                           .format = request.format,
                                           .image = request.image,
                                           .volumes = request.volumes});
  if (request.out.empty())
    std::fwrite(text.data(), 1, text.size(), stdout);
  else
    write_file_atomically(request.out, text, ExitCode::environment);
  return 0;
}

}  // namespace gputrain::app
