// Random changes of training images. One augmentation per file in src/data/images/transforms; its keys are in
// `data.image.augment`.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gputrain/config/catalog.hpp"
#include "gputrain/core/random.hpp"
#include "gputrain/data/image.hpp"
#include "gputrain/data/mixing.hpp"

namespace gputrain::data {

struct Normalization;  // dataset.hpp

/// Image pixels after fitting, row by row without gaps: [height, width, channels].
struct Pixels {
  uint8_t* values = nullptr;
  int64_t width = 0, height = 0, channels = 0;
  const Normalization* statistics = nullptr;  // for their later normalisation; null: mean 0, std 1
  std::optional<Filter> filter = {};          // filter of operations that move pixels; empty: each operation's own
  int64_t* mask = nullptr;  // [height, width], class of each pixel, moved with it; null: the image has no mask
};

/// Kind of random change, thread-safe. Draws only from the given stream, so all workers, ranks and attempts agree.
class Augmentation {
 public:
  virtual ~Augmentation();

  /// Returns whether the job turns it on. The default must be off.
  virtual bool is_on() const = 0;
  /// Returns its place: augmentations run, and draw random numbers, in ascending order; equal ones in order of name.
  virtual int order() const = 0;

  /// Changes which pixels of the image the input shows. `image` is the size of the stored image.
  virtual void place(RandomStream&, const ImageDecoder::Size& /*image*/, Fit&) const {}
  /// Changes pixels after fitting, mostly their colours. Its random stream is independent of the one of place().
  virtual void recolour(RandomStream&, const Pixels&) const {}
  /// Returns whether recolour() leaves pixels where they are, or moves Pixels::mask with them.
  virtual bool keeps_masks() const { return true; }

  /// Returns whether it chooses a crop. A job can have only one such augmentation.
  virtual bool crops() const { return false; }
  /// Returns whether it resizes. If so, the job must set `data.image.size`.
  virtual bool needs_size() const { return false; }
  /// Returns the factor times the input size to which evaluation resizes images, because training sees only crops.
  virtual double eval_zoom() const { return 1; }
};

using AugmentationCatalog = config::Catalog<Augmentation>;
AugmentationCatalog& augmentations();

/// Options of all augmentations, `data.image.augment`. Copies share the options, which never change after parsing.
class AugmentOptions {
 public:
  AugmentOptions();  // turns everything off

  MixOptions mix = {};  // mixing of micro-batches, in the loader
  int64_t repeats = 1;  // times that each image stands in the order of an epoch, in the loader

  struct Active {
    std::string name;
    std::unique_ptr<const Augmentation> augmentation;
  };
  /// Returns the augmentations that are on, in the order in which they run.
  std::vector<Active> active() const;

  static void describe(config::Description<AugmentOptions>& d);

 private:
  struct Entry {
    std::string name;
    int order = 0;
    std::shared_ptr<void> spec;
  };
  void* spec_of(const std::string& name) const;
  static std::unique_ptr<const Augmentation> make(const Entry& entry);

  std::vector<Entry> entries_;  // entries in the order in which they run
};

}  // namespace gputrain::data
