#include "gputrain/datasets/left_out.hpp"

#include "gputrain/core/log.hpp"
#include "gputrain/core/numbers.hpp"
#include "gputrain/core/printable.hpp"

namespace gputrain::datasets {

void LeftOut::add(std::string_view name) {
  if (count++ == 0) first = name;
}

void LeftOut::warn(const std::string& where, std::string_view noun, const std::string& which) const {
  if (count == 0) return;
  log::warning(printable(where) + ": left out " + counted(count, noun) + " " + which +
               (count == 1 ? ": " : ", such as ") + printable(first));
}

}  // namespace gputrain::datasets
