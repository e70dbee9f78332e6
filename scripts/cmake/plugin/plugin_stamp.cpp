// A source of every plug-in: the stamp by which the program sees whether it was built for it.
#include <gputrain/plugin_stamp.hpp>

namespace {

[[gnu::used, gnu::section(".gputrain_plugin")]] const char stamp[] = GPUTRAIN_PLUGIN_STAMP;

}  // namespace
