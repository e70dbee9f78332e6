// Random changes of training images. One per file in src/data/images/transforms; its keys are those of
// `data.image.augment`.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "gputrain/config/catalog.hpp"
#include "gputrain/core/random.hpp"
#include "gputrain/data/image.hpp"

namespace gputrain::data {

/// Fitted pixels, row by row without gaps: [height, width, channels].
struct Pixels {
  uint8_t* values = nullptr;
  int64_t width = 0, height = 0, channels = 0;
};

/// Used by any thread. Every change comes from the random stream, so that any worker, rank or attempt draws the same.
class Augmentation {
 public:
  virtual ~Augmentation();

  /// Whether the job asks for it. By default it must not: a key that is left out changes nothing.
  virtual bool is_on() const = 0;
  /// Augmentations act, and draw, in ascending order, those with the same number by name.
  virtual int order() const = 0;

  /// Geometry: changes where the input takes its pixels from. `image` is the image as it is stored.
  virtual void place(RandomStream&, const ImageDecoder::Size& /*image*/, Fit&) const {}
  /// Colour: changes pixels after they are fitted. Its random numbers are independent of those of place().
  virtual void recolour(RandomStream&, const Pixels&) const {}

  /// Whether it decides which part of the image is seen: a job can have one such augmentation.
  virtual bool crops() const { return false; }
  /// Whether it resizes, so that the job has to say `data.image.size`.
  virtual bool needs_size() const { return false; }
  /// How much larger images are resized for evaluation than the input, because training sees parts of them.
  virtual double eval_zoom() const { return 1; }
};

using AugmentationCatalog = config::Catalog<Augmentation>;
AugmentationCatalog& augmentations();

/// `data.image.augment`: the options of every augmentation. Copies share them; nothing changes them once a job is read.
class AugmentOptions {
 public:
  AugmentOptions();  // everything off

  struct Active {
    std::string name;
    std::unique_ptr<const Augmentation> augmentation;
  };
  /// What the job asks for, in the order in which it acts.
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

  std::vector<Entry> entries_;  // in the order in which they act
};

}  // namespace gputrain::data
