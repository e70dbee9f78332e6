// Verbs for a run's checkpoints.
#include "../library.hpp"
#include "command_line.hpp"
#include "options.hpp"

namespace gputrain {

void CommandLine::add_ckpt() {
  auto* ckpt = app.add_subcommand("ckpt", "list, verify and remove checkpoints");
  ckpt->require_subcommand(1);

  auto* ls = ckpt->add_subcommand("ls", "list the checkpoints of a run, newest last; checks manifests and sizes");
  ls->add_option("run", path, "a run folder, or its ckpt/")->required()->check(not_empty);
  ls->callback([this] { action = [this] { return app::library().ckpt_ls(path, json); }; });

  auto* verify = ckpt->add_subcommand("verify", "hash every file of a run's checkpoints, or of one");
  verify->add_option("path", path, "a run folder, its ckpt/, or one checkpoint")->required()->check(not_empty);
  verify->footer("Exit code: 0 all are good; 5 something is wrong, or there is no checkpoint.");
  verify->callback([this] { action = [this] { return app::library().ckpt_verify(path, json); }; });

  auto* verb = ckpt->add_subcommand("prune", "remove checkpoints that no --keep option keeps, and half-written ones");
  verb->add_option("run", prune.run, "a run folder, or its ckpt/")->required()->check(not_empty);
  verb->add_option("--keep-last", prune.keep_last, "how many of the newest stay")->required()->check(at_least(1));
  verb->add_option("--keep-best", prune.keep_best, "so many of the best by score stay too")->check(at_least(0));
  verb->add_option("--keep-every", prune.keep_every, "multiples of so many steps stay too")->check(at_least(1));
  verb->add_flag("--set-aside", prune.set_aside,
                 "remove also those that were set aside (step-....bad) or are of a branch that was left");
  verb->add_flag("--dry-run", prune.dry_run, "only say what would go");
  verb->footer("The newest checkpoint that verifies always stays.");
  verb->callback([this] { action = [this] { return app::library().ckpt_prune(prune); }; });

  for (auto* each : {ls, verify}) each->add_flag("--json", json, "print one JSON document");
  verb->add_flag("--json", prune.json, "print one JSON document");
}

void CommandLine::add_replay() {
  auto* verb = app.add_subcommand("replay", "repeat a step of a run and compare it with the record");
  verb->add_option("run", replay.run, "the run folder; nothing in it is changed")->required()->check(not_empty);
  verb->add_option("--step", replay.step, "the step to repeat, from the newest checkpoint before it")
      ->required()
      ->check(at_least(1));
  verb->add_flag("--json", replay.json, "print one JSON document");
  verb->footer(
      "Compares loss, gradient norm and learning rate with metrics.jsonl at every\n"
      "recorded step on the way, and weights and optimizer with the checkpoint of the\n"
      "step, where there is one.\n"
      "Exit code: 0 equal bit for bit; 4 they differ.");
  verb->callback([this] { action = [this] { return app::library().replay(replay); }; });
}

}  // namespace gputrain
