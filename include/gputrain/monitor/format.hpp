// Numbers in the format of the console.
#pragma once

#include <concepts>
#include <string>

namespace gputrain::monitor {

std::string compact(double value);      // 950, 12.3k, 1.74M, 10.3B
std::string significant(double value);  // four significant digits, exponent when small: 5.402, 4.29e-4
std::string fixed(double value);        // at most seven characters: 2.9860, 12.345, 4.29e-4
std::string money(double sum);          // 12.40; below a hundredth as significant(): 4.29e-4
std::string duration(double seconds);   // 4.1ms, 302ms, 3.1s, 4m10s, 1h36m, 2d3h
std::string bytes(double count);        // 512 B, 41.3 MiB, 79.1 GiB
std::string bytes(std::integral auto count) { return bytes(static_cast<double>(count)); }

}  // namespace gputrain::monitor
