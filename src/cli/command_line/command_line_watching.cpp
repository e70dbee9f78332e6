// Verbs for runs in progress.
#include "../library.hpp"
#include "command_line.hpp"

namespace gputrain {

void CommandLine::add_watching() {
  auto* verb = app.add_subcommand("ctl", "give an order to a run that is going on");
  verb->add_option("run", ctl.run, "the run folder, on the host of rank 0")->required();
  verb->add_option("verb", ctl.verb, "status, save, pause, resume, stop, profile or set")
      ->required()
      ->check(CLI::IsMember({"status", "save", "pause", "resume", "stop", "profile", "set"}));
  verb->add_option("argument", ctl.argument, "with set: optimizer.lr=1e-4; with profile: the number of steps");
  verb->add_flag("--json", ctl.json, "with status: print one JSON document");
  verb->footer(
      "The ranks carry out an order together, between two steps, and the ledger keeps\n"
      "it. stop saves and ends with exit code 143; the same command goes on from there.\n"
      "A learning rate that was set stays set when the run is resumed.");
  verb->callback([this] { action = [this] { return app::library().ctl(ctl); }; });

  auto* page = app.add_subcommand("top", "watch a run in the terminal, or list the runs of a folder");
  page->add_option("run", top.run,
                   "the folder of a run, on the host of rank 0, of a sweep, or with runs in it; or HOST:PORT of its "
                   "log.metrics_port")
      ->required();
  page->add_flag("--once", top.once, "print one page and end; so it is too where stdout is no terminal");
  page->add_flag("--json", top.json, "print one JSON document with an object for each run of the folder");
  page->footer(
      "Ctrl-C ends it; the run goes on. A run or sweep that has ended is shown once.\n"
      "Of a folder with runs it shows a line for each: its state, when it gave the last\n"
      "sign of life, its steps, the best of its main metric, time and cost of all its\n"
      "attempts, and when it began. A run that is `lost` has neither ended nor does it go\n"
      "on; one `on HOST` was started there, where `top` tells whether it goes on.\n"
      "Programs read more in `gputrain ctl RUN status --json` while a run goes on, then in\n"
      "summary.json in its folder; of a sweep, in sweep.json.");
  auto* runs = app.add_subcommand("compare", "compare runs: settings that differ, results, speed, curves");
  runs->add_option("runs", compare.runs,
                   "folders of runs, of sweeps, or with runs in them; these stand for their trials or runs")
      ->required()
      ->expected(1, -1);
  runs->add_option("--html", compare.html, "write a page with a chart for each metric");
  runs->add_flag("--json", compare.json, "print one JSON document");
  runs->callback([this] { action = [this] { return app::library().compare(compare); }; });
  page->callback([this] { action = [this] { return app::library().top(top); }; });
}

}  // namespace gputrain
