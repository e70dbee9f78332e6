#include "../library.hpp"
#include "command_line.hpp"
#include "options.hpp"

namespace gputrain {

void CommandLine::add_doctor() {
  auto* verb = app.add_subcommand("doctor", "check whether this machine, or several hosts, can train well");
  verb->add_option("job", doctor.job, "a job file: are its checkpoints too much for the disk?")->check(not_empty);
  verb->add_option("--hosts", doctor.hosts, "hosts that ssh reaches, h1,h2: each is checked, and compared with others")
      ->type_name("HOSTS")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(not_empty);
  auto* measures = verb->add_flag("--bench", doctor.measures,
                                  "measure products, copies, the disk and the network; what is far below the best ever "
                                  "measured on this kind of machine is bad");
  verb->add_option("--min-percent", doctor.least_percent, "with --bench: of the best (default: 80)")
      ->check(CLI::Range(0.0, 100.0))
      ->needs(measures);
  verb->add_option("--device", doctor.device, "with --bench: auto (default), cpu, cuda")
      ->check(CLI::IsMember({"auto", "cpu", "cuda"}))
      ->needs(measures);
  verb->add_option("--folder", doctor.folder, "on the disk to be measured (default: the current one)")
      ->check(not_empty);
  verb->add_flag("--json", doctor.json, "print one JSON document");
  verb->add_flag("--serve", doctor.serves, "what `--hosts` starts on each host")->group("");
  verb->footer(
      "The best rates are kept in $XDG_STATE_HOME/gputrain/machines.json, else below\n"
      "~/.local/state.\n"
      "Exit code: 0 fit, perhaps with warnings; 6 something must be fixed first.");
  verb->callback([this] { action = [this] { return app::library().doctor(doctor); }; });
}

}  // namespace gputrain
