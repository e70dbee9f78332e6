#include "gputrain/ops/recorded.hpp"

namespace gputrain::ops {

namespace {
thread_local bool recorded = false;
}  // namespace

RecordedScope::RecordedScope() noexcept : before_(recorded) { recorded = true; }

RecordedScope::~RecordedScope() { recorded = before_; }

bool is_recorded() noexcept { return recorded; }

}  // namespace gputrain::ops
