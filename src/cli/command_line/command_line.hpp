// Subcommands of the program and their options.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "../commands.hpp"

namespace gputrain {

/// Command line with all subcommands and their options. Parsing sets `action` to that of the given subcommand.
struct CommandLine {
  CommandLine();
  CommandLine(const CommandLine&) = delete;

  /// Parses a command line. Returns an exit code if that is all: --help or --version.
  std::optional<int> read(const std::vector<std::string>& words);
  /// Prints completions of the last of these words, for a shell.
  int complete(const std::vector<std::string>& words) const;
  /// Runs the subcommand, and returns the exit code.
  int act() const { return action(); }
  bool got(const char* subcommand) const { return app.got_subcommand(subcommand); }

  CLI::App app{"Trains deep-learning models from one YAML file: on a CPU, a GPU, many machines.", "gputrain"};
  app::RunRequest run;
  app::EvalRequest eval;
  app::GenerateRequest generate;
  app::PredictRequest predict;
  app::ReplayRequest replay;
  app::LaunchRequest launch;
  app::JobRequest job;
  app::PruneRequest prune;
  app::TokenizeCommand tokenize;
  app::DataShowRequest data_show;
  app::CtlCommand ctl;
  app::TopCommand top;
  app::CompareCommand compare;
  app::ExportRequest exported;
  app::FetchCommand fetch;
  app::BenchRequest bench;
  app::BenchCommRequest bench_comm;
  app::BenchDataRequest bench_data;
  app::DoctorRequest doctor;
  app::PlanCommand plan;
  app::SweepRequest sweep;
  app::InitRequest init;
  app::ImportRequest import_request;
  bool json = false, origin = false;
  std::string kind, name, markdown, path;
  std::vector<std::string> plugins;
  std::function<int()> action;

  void add_run();
  void add_launch();
  /// Turns an option of `launch` into a setting of the job, quoted so that YAML does not interpret it.
  void add_launch_setting(const std::string& key, const std::string& text);
  void add_eval();
  void add_predict();
  void add_export();
  void add_fetch();
  void add_generate();
  void add_replay();
  void add_bench();
  void add_bench_comm(CLI::App& verb);
  void add_bench_data(CLI::App& verb);
  void add_doctor();
  void add_plan();
  void add_sweep();
  void add_init();
  void add_import();
  void add_readers();
  void add_data();
  void add_ckpt();
  void add_watching();
  /// Parses the command after the options of `launch`, which every rank parses again.
  int start_ranks();
};

}  // namespace gputrain
