// How a sanitizer affects tests: programs run slower, and its own memory counts as theirs.
#pragma once

namespace gputrain::testing {

#if defined(__SANITIZE_THREAD__)
inline constexpr bool kIsSanitized = true;
inline constexpr int kSlowdown = 10;
#elif defined(__SANITIZE_ADDRESS__)
inline constexpr bool kIsSanitized = true;
inline constexpr int kSlowdown = 4;
#else
inline constexpr bool kIsSanitized = false;
inline constexpr int kSlowdown = 1;
#endif

/// The timeout under a sanitizer, or the longest time allowed, if `span` is enough without one.
template <typename Span>
constexpr Span patience(Span span) {
  return span * kSlowdown;
}

/// Why a test of `ulimit -d` is skipped under kIsSanitized.
inline constexpr const char* kNoDataLimit =
    "ulimit -d counts a sanitizer's terabytes of addresses as data: no program starts";

}  // namespace gputrain::testing
