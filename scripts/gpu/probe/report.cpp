#include "report.hpp"

#include <cmath>
#include <cstdio>
#include <exception>
#include <iostream>

#include <cuda_runtime_api.h>

namespace probe {
namespace {

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out += ' ';
    } else {
      out += c;
    }
  }
  return out + "\"";
}

}  // namespace

Record& Record::set(const std::string& name, const std::string& value) {
  fields_.emplace_back(name, quoted(value));
  return *this;
}

Record& Record::set(const std::string& name, double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.6g", value);
  fields_.emplace_back(name, std::isfinite(value) ? text : "null");
  return *this;
}

Record& Record::set(const std::string& name, int64_t value) {
  fields_.emplace_back(name, std::to_string(value));
  return *this;
}

Record& Record::set(const std::string& name, bool value) {
  fields_.emplace_back(name, value ? "true" : "false");
  return *this;
}

std::string Record::json() const {
  std::string out = "{";
  for (const auto& [name, value] : fields_) out += (out.size() > 1 ? ", " : "") + quoted(name) + ": " + value;
  return out + "}";
}

void Report::attempt(const std::string& section, Record record, const std::function<void(Record&)>& measure) {
  try {
    measure(record);
    if (const cudaError_t status = cudaDeviceSynchronize(); status != cudaSuccess) {
      record.set("error", cudaGetErrorString(status));
    }
  } catch (const std::exception& error) {
    const std::string text = error.what();
    record.set("error", text.substr(0, text.find("\nException raised from")).substr(0, 400));
    cudaGetLastError();
  }
  std::cout << section << ' ' << record.json() << std::endl;
}

}  // namespace probe
