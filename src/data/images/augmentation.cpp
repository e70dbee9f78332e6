#include "gputrain/data/augmentation.hpp"

#include <algorithm>
#include <tuple>

#include "gputrain/core/error.hpp"

namespace gputrain::data {

AugmentationCatalog& augmentations() {
  static AugmentationCatalog catalog("augmentation");
  return catalog;
}

Augmentation::~Augmentation() = default;

AugmentOptions::AugmentOptions() {
  for (const config::CatalogEntry& entry : augmentations().entries()) {
    Entry& added = entries_.emplace_back(Entry{.name = entry.name, .spec = entry.schema->create()});
    added.order = make(added)->order();
  }
  std::ranges::sort(entries_, {}, [](const Entry& entry) { return std::tie(entry.order, entry.name); });
}

std::unique_ptr<const Augmentation> AugmentOptions::make(const Entry& entry) {
  return augmentations().make({entry.name, entry.spec});
}

std::vector<AugmentOptions::Active> AugmentOptions::active() const {
  std::vector<Active> active;
  for (const Entry& entry : entries_) {
    auto augmentation = make(entry);
    if (augmentation->is_on()) active.push_back({entry.name, std::move(augmentation)});
  }
  return active;
}

void* AugmentOptions::spec_of(const std::string& name) const {
  const auto found = std::ranges::find(entries_, name, &Entry::name);
  GPUTRAIN_ASSERT(found != entries_.end(), "the augmentation '" + name + "' is registered before any job is read");
  return found->spec.get();
}

void AugmentOptions::describe(config::Description<AugmentOptions>& d) {
  d.summary("random changes of training images, drawn anew in each epoch");
  for (const Entry& entry : AugmentOptions().entries_) {
    d.keys_of(*augmentations().find(entry.name)->schema, [name = entry.name](void* options) {
      return static_cast<const AugmentOptions*>(options)->spec_of(name);
    });
  }
  d.key("mix", &AugmentOptions::mix, "mixup and CutMix: pairs of training images are mixed, and their classes");
  d.key("repeats", &AugmentOptions::repeats,
        "repeated augmentation (Hoffer et al., arXiv:1901.09335): each image stands so often in a row, changed anew "
        "each "
        "time; an epoch has as many samples as without it, and so sees only that share of the images")
      .range(1, 1000)
      .aliases({"aug_repeats", "repeated_aug"});
  d.check([](const AugmentOptions& options, config::SpecIssues& issues) {
    for (const Entry& entry : options.entries_) {
      const auto& check = augmentations().find(entry.name)->schema->check();
      if (check) check(entry.spec.get(), issues);
    }
  });
}

}  // namespace gputrain::data
