#include "gputrain/records/conversations.hpp"

#include "gputrain/data/referenced_samples.hpp"
#include "gputrain/data/subset.hpp"
#include "samples/text_samples.hpp"

namespace gputrain::records {

bool has_conversations(const data::Dataset& dataset) {
  if (const auto* some = dynamic_cast<const data::SomeSamples*>(&dataset)) return has_conversations(some->whole());
  if (const auto* referenced = dynamic_cast<const data::ReferencedSamples*>(&dataset))
    return has_conversations(*referenced->samples());
  const auto* texts = dynamic_cast<const TextSamples*>(&dataset);
  return texts != nullptr && texts->is_chat();
}

}  // namespace gputrain::records
