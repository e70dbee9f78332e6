#include "gputrain/job/version.hpp"

namespace gputrain::app {

std::string version() { return GPUTRAIN_VERSION; }

}  // namespace gputrain::app
