// Work on numbered things by all threads of this rank.
#pragma once

#include <cstddef>
#include <functional>

namespace gputrain::datasets {

/// Calls work(i) once for each i in [0, count), from several threads. Throws the error of the lowest i that has one.
void parallel_for(size_t count, const std::function<void(size_t)>& work);

}  // namespace gputrain::datasets
