// Simulated hosts on one machine: network namespaces on a bridge, each with a real sshd.
#pragma once

#include <sys/types.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "support/program.hpp"

namespace gputrain::testing_support {

class SshHosts {
 public:
  /// What is missing to make them (sshd, ip, permission), as the reason of a skip; empty: nothing.
  static std::string missing();

  /// Creates hosts "h1", "h2", ..., which the `ssh` in environment() can reach.
  explicit SshHosts(int count);
  ~SshHosts();
  SshHosts(const SshHosts&) = delete;
  SshHosts& operator=(const SshHosts&) = delete;

  /// PATH with an ssh that finds the hosts and uses only its own keys.
  std::map<std::string, std::string> environment() const;
  /// A command prefix that runs a command on a host.
  std::vector<std::string> entering(int host) const { return {"ip", "netns", "exec", name_of(host)}; }
  std::string address_of(int host) const { return subnet_ + std::to_string(host); }
  /// Runs a command that changes what this host alone sees of the file systems. Throws if it fails.
  void change(int host, const std::vector<std::string>& command) const;
  /// The process of its sshd.
  pid_t server(int host) const;
  void set_link(int host, bool is_up) const;
  void forget_key_of(int host) const;
  /// Waits for the agent on a host; throws after ten seconds.
  pid_t agent(int host) const;
  /// Commands that run on the hosts, without sshd and its sessions.
  std::vector<std::string> commands() const;
  /// Whether within this time only sshd is left on every host.
  bool are_empty_within(double seconds) const;

 private:
  std::string name_of(int host) const { return prefix_ + "h" + std::to_string(host); }
  std::vector<pid_t> processes_on(int host) const;
  void add_host(int host);
  void remove();

  TemporaryFolder folder_;
  std::string prefix_, subnet_;
  int count_ = 0;
  std::vector<std::unique_ptr<Program>> servers_;
};

}  // namespace gputrain::testing_support
