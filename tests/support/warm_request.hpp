// What a test asks of a warm program (warm_server.hpp): a process with these words and streams.
#pragma once

#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <vector>

namespace gputrain::testing_support {

struct WarmRequest {
  size_t arguments = 0;
  std::vector<std::string> words;  // the current folder, the arguments, and the environment's variables
  std::array<int, 3> streams{-1, -1, -1};

  /// Has the server at the other end of the socket make the process. Returns its number, or -1.
  pid_t start(int socket) const { return send(socket) ? answer_of(socket) : -1; }
  static pid_t answer_of(int socket) {
    pid_t answer = -1;
    return ::read(socket, &answer, sizeof answer) == sizeof answer ? answer : -1;
  }

  /// Sends it with copies of the streams.
  bool send(int socket) const {
    std::string text = std::to_string(arguments) + '\0';
    for (const std::string& word : words) text += word + '\0';
    const int file = ::memfd_create("request", MFD_CLOEXEC);
    const bool is_written = ::write(file, text.data(), text.size()) == static_cast<ssize_t>(text.size());
    const std::array<int, 4> descriptors{file, streams[0], streams[1], streams[2]};
    Message message;
    std::memcpy(CMSG_DATA(message.rights()), descriptors.data(), sizeof descriptors);
    const bool is_sent = is_written && ::sendmsg(socket, &message.header, MSG_NOSIGNAL) == 1;
    ::close(file);
    return is_sent;
  }

  /// False at the end of the socket.
  bool receive(int socket) {
    Message message;
    if (::recvmsg(socket, &message.header, MSG_CMSG_CLOEXEC) != 1) return false;
    std::array<int, 4> descriptors{};
    std::memcpy(descriptors.data(), CMSG_DATA(message.rights()), sizeof descriptors);
    std::copy(descriptors.begin() + 1, descriptors.end(), streams.begin());
    std::string text(static_cast<size_t>(::lseek(descriptors[0], 0, SEEK_END)), '\0');
    const bool is_read = ::pread(descriptors[0], text.data(), text.size(), 0) == static_cast<ssize_t>(text.size());
    ::close(descriptors[0]);
    for (size_t begin = 0, end; (end = text.find('\0', begin)) != std::string::npos; begin = end + 1) {
      words.push_back(text.substr(begin, end - begin));
    }
    arguments = std::stoul(words.at(0));
    words.erase(words.begin());
    return is_read;
  }

  void close() {
    for (const int stream : streams) ::close(stream);
  }

 private:
  struct Message {
    Message() {
      header.msg_iov = &part;
      header.msg_iovlen = 1;
      header.msg_control = space.data();
      header.msg_controllen = space.size();
      rights()->cmsg_level = SOL_SOCKET;
      rights()->cmsg_type = SCM_RIGHTS;
      rights()->cmsg_len = CMSG_LEN(4 * sizeof(int));
    }
    cmsghdr* rights() { return CMSG_FIRSTHDR(&header); }

    char byte = 0;
    iovec part{.iov_base = &byte, .iov_len = 1};
    alignas(cmsghdr) std::array<char, CMSG_SPACE(4 * sizeof(int))> space{};
    msghdr header{};
  };
};

}  // namespace gputrain::testing_support
