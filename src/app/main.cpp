#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <string>

#include "commands.hpp"
#include "gputrain/config/problem.hpp"
#include "gputrain/core/error.hpp"

namespace {

using namespace gputrain;

void add_job(CLI::App& verb, app::JobRequest& job) {
  verb.add_option("job", job.file, "the job file (YAML)")->required();
  verb.add_option("--set", job.set, "set one key: --set train.max_steps=100 (repeatable, wins over the file)")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
}

/// All verbs and their options; the one that was typed leaves its action in `action`.
struct CommandLine {
  CLI::App app{"Trains deep-learning models from one YAML file, on a CPU, a GPU, or many machines.", "gputrain"};
  app::RunRequest run;
  app::EvalRequest eval;
  app::JobRequest job;
  bool json = false, origin = false;
  std::string kind, name;
  std::function<int()> action;

  CommandLine() {
    app.require_subcommand(1);
    app.set_help_all_flag("--help-all", "help of every verb");
    app.failure_message(CLI::FailureMessage::simple);
    add_run();
    add_eval();
    add_readers();
  }

  void add_run() {
    auto* verb = app.add_subcommand("run", "train");
    add_job(*verb, run.job);
    verb->add_option("--output-dir", run.job.output_dir, "the run folder, as --set output_dir=DIR");
    verb->add_flag("--dry-run", run.dry_run, "check everything short of training: data, model, memory, run folder");
    verb->add_flag("--accept", run.accept, "resume although settings changed that may change the results");
    verb->add_flag("--verify", run.verify, "exit with 4 when the result misses the job's expect: band");
    verb->callback([this] { action = [this] { return app::run_command(run); }; });
  }

  void add_eval() {
    auto* verb = app.add_subcommand("eval", "evaluate trained weights on the job's data");
    add_job(*verb, eval.job);
    verb->add_option("--weights", eval.weights, "model.safetensors, or a run folder; default: the job's run folder");
    verb->add_option("--on", eval.on, "which data: train, val or test")->check(CLI::IsMember({"train", "val", "test"}));
    verb->add_flag("--json", eval.json, "print the metrics as JSON");
    verb->callback([this] { action = [this] { return app::eval_command(eval); }; });
  }

  void add_readers() {
    auto* validate = app.add_subcommand("validate", "check a job file, all of it, without touching data or devices");
    add_job(*validate, job);
    validate->add_flag("--json", json, "print the problems as JSON");
    validate->callback([this] { action = [this] { return app::validate_command(job, json); }; });

    auto* config = app.add_subcommand("config", "print the resolved job, defaults included");
    add_job(*config, job);
    config->add_flag("--origin", origin, "say which file, line or option set each key");
    config->callback([this] { action = [this] { return app::config_command(job, origin); }; });

    auto* schema = app.add_subcommand("schema", "print the JSON Schema of a job file, for editors");
    schema->callback([this] { action = [] { return app::schema_command(); }; });

    auto* list = app.add_subcommand("list", "list models, datasets, optimizers, ...");
    list->add_option("kind", kind, "what to list; nothing: everything");
    list->callback([this] { action = [this] { return app::list_command(kind); }; });

    auto* describe = app.add_subcommand("describe", "explain the options of the job or of one entry");
    describe->add_option("kind", kind, "model, dataset, optimizer, ... or job")->required();
    describe->add_option("name", name, "the entry, as `gputrain list` names it");
    describe->callback([this] { action = [this] { return app::describe_command(kind, name); }; });

    auto* version = app.add_subcommand("version", "print versions of gputrain and what it was built with");
    version->callback([this] { action = [] { return app::version_command(); }; });
  }
};

bool stderr_has_colour() {
  const char* no_colour = std::getenv("NO_COLOR");
  return isatty(STDERR_FILENO) == 1 && (no_colour == nullptr || *no_colour == '\0');
}

/// One clear message on stderr and the exit code it deserves. A library's exception may carry a stack trace after its
/// first line: only that line is for the user.
int report(std::exception_ptr failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const config::SpecError& error) {
    std::fprintf(stderr, "%s\n", error.render(stderr_has_colour()).c_str());
    return static_cast<int>(error.code());
  } catch (const Error& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return static_cast<int>(error.code());
  } catch (const std::bad_alloc&) {
    std::fprintf(stderr, "error: out of memory\n  try: a smaller train.micro_batch_size\n");
    return static_cast<int>(ExitCode::environment);
  } catch (const std::exception& error) {
    const std::string text = error.what();
    std::fprintf(stderr, "internal error: %s\n  This is a bug of gputrain; please report it with the command and the job file.\n",
                 text.substr(0, text.find('\n')).c_str());
    return static_cast<int>(ExitCode::internal);
  }
}

}  // namespace

int main(int argc, char** argv) {
  CommandLine line;
  try {
    line.app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    const int code = line.app.exit(error);
    return code == 0 ? 0 : static_cast<int>(ExitCode::usage);
  }
  try {
    return line.action();
  } catch (...) {
    return report(std::current_exception());
  }
}
