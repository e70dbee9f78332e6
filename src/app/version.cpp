#include "version.hpp"

namespace gputrain::app {

std::string version() { return GPUTRAIN_VERSION; }

}  // namespace gputrain::app
