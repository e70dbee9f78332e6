#include "../gpus.hpp"

namespace gputrain::launch {

int gpus_here() { return 0; }

}  // namespace gputrain::launch
