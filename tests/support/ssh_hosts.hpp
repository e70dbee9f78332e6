// Hosts of their own on one machine: network namespaces on a bridge, each with a real sshd.
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

  /// Hosts "h1", "h2", ... as the `ssh` in environment() knows them.
  explicit SshHosts(int count);
  ~SshHosts();
  SshHosts(const SshHosts&) = delete;
  SshHosts& operator=(const SshHosts&) = delete;

  /// PATH with an ssh that finds the hosts, and no one else's keys.
  std::map<std::string, std::string> environment() const;
  /// What puts a command line onto a host, to be written before it.
  std::vector<std::string> entering(int host) const { return {"ip", "netns", "exec", name_of(host)}; }
  std::string address_of(int host) const { return subnet_ + std::to_string(host); }
  void set_link(int host, bool is_up) const;
  void forget_key_of(int host) const;
  /// The agent on a host, waited for until it exists; throws after ten seconds.
  pid_t agent(int host) const;
  /// Commands that run on the hosts, sshd and its sessions left out.
  std::vector<std::string> commands() const;
  /// Whether nothing but sshd is left on any host within that time.
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
