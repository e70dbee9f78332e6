// Table of this library's subcommands, by which the program finds them.
#include "commands.hpp"
#include "gputrain/config/schema.hpp"

extern "C" __attribute__((visibility("default"))) const gputrain::app::Verbs gputrain_verbs;

#define GPUTRAIN_VERB(name) .name = gputrain::app::name##_command,
const gputrain::app::Verbs gputrain_verbs{.check = gputrain::config::refuse_wrong_registrations,
                                          GPUTRAIN_VERBS(GPUTRAIN_VERB)};
