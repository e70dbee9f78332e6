#include "command_line.hpp"
#include "library.hpp"
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
  verb->add_flag("--json", doctor.json, "print one JSON document");
  auto* serves = verb->add_flag("--serve", doctor.serves, "what `--hosts` starts on each host")->group("");
  verb->add_option("--folder", doctor.folder, "with --serve: the folder to be in")->needs(serves)->group("");
  verb->footer("Exit code: 0 fit, perhaps with warnings; 6 something must be mended first.");
  verb->callback([this] { action = [this] { return app::library().doctor(doctor); }; });
}

}  // namespace gputrain
