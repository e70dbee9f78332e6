// Opens records as samples of texts.
#pragma once

#include <string>

#include "../../src/records/samples/text_samples.hpp"
#include "datasets/opened.hpp"

namespace gputrain::records {

struct SamplesTest : datasets::FolderTest {
  data::DatasetSplits opened(Target target, const std::string& name, const std::string& more = "",
                             const std::string& text = "tokenizer: bytes") const {
    return datasets::open_for({.field = kTokens, .longest = 100, .target = target},
                              "{train: {path: " + path(name) + ", format: " + name.substr(name.rfind('.') + 1) +
                                  "}, text: {" + text + "}" + more + "}");
  }
  std::string described(Target target, const std::string& name, const std::string& text = "tokenizer: bytes") const {
    std::string description;
    const std::string warnings =
        datasets::warning_of([&] { description = opened(target, name, "", text).train->describe(); });
    return warnings + description;
  }
};

}  // namespace gputrain::records
