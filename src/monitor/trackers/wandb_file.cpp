#include "wandb_file.hpp"

#include <zlib.h>
#include <array>
#include <fstream>
#include <optional>

#include "../read_whole.hpp"
#include "gputrain/core/little_endian.hpp"

namespace gputrain::monitor::wandb {
namespace {

using protobuf::Field;
using protobuf::Message;

// Field numbers of wandb/proto/wandb_internal.proto.
namespace record_field {
constexpr uint32_t kNumber = 1, kHistory = 2, kSummary = 3, kRun = 17, kExit = 18, kHeader = 21, kInfo = 200;
}
namespace run_field {
constexpr uint32_t kId = 1, kEntity = 2, kProject = 3, kConfig = 4, kDisplayName = 8, kStartTime = 17;
}
constexpr uint32_t kUpdate = 1, kItem = 1, kStep = 2;          // fields of a config or summary; field of a history
constexpr uint32_t kKey = 1, kNestedKey = 2, kValueJson = 16;  // fields of an item

constexpr std::string_view kFileHeader(":W&B\xe1\xbe\x00", 7);
constexpr size_t kBlockBytes = 32768, kChunkHeaderBytes = 7;
constexpr std::string_view kProducer = "gputrain";
enum Chunk : uint8_t { kFull = 1, kFirst = 2, kMiddle = 3, kLast = 4 };

uint32_t checksum(uint8_t kind, std::string_view data) {
  const uLong crc = crc32(0, &kind, 1);
  return static_cast<uint32_t>(crc32(crc, reinterpret_cast<const Bytef*>(data.data()), static_cast<uInt>(data.size())));
}

std::string chunk(uint8_t kind, std::string_view data) {
  std::string bytes = little_endian(checksum(kind, data), 4) + little_endian(data.size(), 2);
  bytes += static_cast<char>(kind);
  return bytes.append(data);
}

/// Reader of a file's records.
class Reader {
 public:
  explicit Reader(std::string_view file) : file_(file), at_(kFileHeader.size()) {}

  std::optional<std::string> next() {
    std::string record;
    while (true) {
      const size_t left = kBlockBytes - at_ % kBlockBytes;
      if (left < kChunkHeaderBytes) at_ += left;
      if (at_ > file_.size() || file_.size() - at_ < kChunkHeaderBytes) return std::nullopt;
      const uint64_t crc = from_little_endian(file_.substr(at_, 4));
      const uint64_t size = from_little_endian(file_.substr(at_ + 4, 2));
      const auto kind = static_cast<uint8_t>(file_[at_ + 6]);
      at_ += kChunkHeaderBytes;
      if (size > file_.size() - at_ || checksum(kind, file_.substr(at_, size)) != crc) return std::nullopt;
      record.append(file_.substr(at_, size));
      at_ += size;
      if (kind == kFull || kind == kLast) return record;
    }
  }

 private:
  std::string_view file_;
  size_t at_;
};

Message items(uint32_t field, uint32_t key_field, const Values& values) {
  Message message;
  for (const auto& [key, value] : values)
    message.message(field, Message().text(key_field, key).text(kValueJson, value));
  return message;
}

Row row_of(std::string_view history) {
  Row row;
  protobuf::read_fields(history, [&](const Field& field) {
    if (field.number == kStep) row.step = static_cast<int64_t>(protobuf::find_field(field.bytes, 1).value);
    if (field.number != kItem) return;
    const std::string key(protobuf::find_field(field.bytes, kNestedKey).bytes);
    row.values[key] = protobuf::find_field(field.bytes, kValueJson).bytes;
  });
  return row;
}

}  // namespace

Message header(const std::string& run_id) {
  constexpr std::string_view kNeeds = "0.70.0";  // required version of wandb
  return Message()
      .message(record_field::kHeader, Message().message(1, Message().text(1, kProducer).text(2, kNeeds)))
      .message(record_field::kInfo, Message().text(1, run_id));
}

Message of(const Run& run) {
  Message message;
  message.text(run_field::kId, run.id).text(run_field::kProject, run.project);
  if (!run.entity.empty()) message.text(run_field::kEntity, run.entity);
  message.message(run_field::kConfig, items(kUpdate, kKey, run.config));
  message.text(run_field::kDisplayName, run.name);
  message.message(run_field::kStartTime, Message().integer(1, run.start_seconds));
  return Message().message(record_field::kRun, message).message(record_field::kInfo, Message().text(1, run.id));
}

Message of(const Row& row) {
  return Message().message(record_field::kHistory,
                           items(kItem, kNestedKey, row.values).message(kStep, Message().integer(1, row.step)));
}

Message summary(const Values& values) {
  return Message().message(record_field::kSummary, items(kUpdate, kNestedKey, values));
}

Message exit(int exit_code, int64_t runtime_seconds, const std::string& run_id) {
  return Message()
      .message(record_field::kExit, Message().integer(1, exit_code).integer(2, runtime_seconds))
      .message(record_field::kInfo, Message().text(1, run_id));
}

bool is_ours(const std::filesystem::path& path) {
  std::array<char, 1024> begin{};  // our first record is shorter
  std::ifstream file(path, std::ios::binary);
  file.read(begin.data(), begin.size());
  const std::string_view bytes(begin.data(), static_cast<size_t>(file.gcount()));
  if (!bytes.starts_with(kFileHeader)) return false;
  const auto first = Reader(bytes).next();
  if (!first) return false;
  const auto header = protobuf::find_field(*first, record_field::kHeader).bytes;
  return protobuf::find_field(protobuf::find_field(header, 1).bytes, 1).bytes == kProducer;
}

Past read(const std::filesystem::path& path) {
  const std::string file = read_whole(path);
  Past past;
  if (!file.starts_with(kFileHeader)) return past;
  Reader reader(file);
  while (const auto record = reader.next()) {
    protobuf::read_fields(*record, [&](const Field& field) {
      if (field.number == record_field::kHistory) past.rows.push_back(row_of(field.bytes));
      if (field.number == record_field::kRun) {
        const auto start = protobuf::find_field(field.bytes, run_field::kStartTime).bytes;
        past.start_seconds = static_cast<int64_t>(protobuf::find_field(start, 1).value);
      }
    });
  }
  return past;
}

std::string Framing::next(const Message& record) {
  Message numbered;
  numbered.integer(record_field::kNumber, ++records_);
  const std::string whole = numbered.wire() + record.wire();
  std::string_view rest = whole;
  std::string bytes(size_ == 0 ? kFileHeader : std::string_view());
  for (bool is_first = true; is_first || !rest.empty(); is_first = false) {
    size_t room = kBlockBytes - (static_cast<size_t>(size_) + bytes.size()) % kBlockBytes;
    if (room < kChunkHeaderBytes) {
      bytes.append(room, '\0');
      room = kBlockBytes;
    }
    const std::string_view part = rest.substr(0, room - kChunkHeaderBytes);
    rest.remove_prefix(part.size());
    const bool is_last = rest.empty();
    bytes += chunk(is_first ? (is_last ? kFull : kFirst) : (is_last ? kLast : kMiddle), part);
  }
  size_ += static_cast<int64_t>(bytes.size());
  return bytes;
}

}  // namespace gputrain::monitor::wandb
