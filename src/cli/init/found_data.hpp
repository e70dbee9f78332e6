// What data is, by its files and folders and by what stands in them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "gputrain/records/found_records.hpp"

namespace gputrain::app {

/// Masks that were looked at.
struct FoundMasks {
  int64_t looked_at = 0, classes = 0;
  bool are_black_and_white = false;  // 0 and 255
};

struct FoundData {
  std::string train, val;  // values of data.train and data.val
  std::string test = {};   // value of data.test; empty: none
  std::string image = {};  // keys of data.image: the columns of a list
  bool is_text = false;    // a plain text
  std::optional<records::FoundRecords> records = {};
  std::optional<FoundMasks> masks = {};
  std::vector<std::string> notes = {};  // what else there is, and what it is not used for
};

/// Recognises data. Its content is checked when it is opened. `for_encoder`: the model to begin with is an encoder of
/// texts. Throws Error(data) or Error(usage).
FoundData look_at(const std::filesystem::path& data, bool for_encoder);

/// Writes the section `data`, with `image` and `text` as maps in braces; empty: none.
std::string data_section(const FoundData& found, const std::string& image, const std::string& text = {});

}  // namespace gputrain::app
