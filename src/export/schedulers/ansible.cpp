#include <fmt/format.h>

#include "text.hpp"

namespace gputrain::app {
namespace {

constexpr const char* kPlaybook = R"(# Playbook of Ansible: ansible-playbook -i INVENTORY THIS_FILE
# Fill in: the group of hosts, as many as launch.nnodes says (@NODES@); the archive of gputrain, unless it is on the
# hosts already; port 29500 is open between them.
@NOTES@
- name: @LABEL@
  hosts: all
  gather_facts: false
  vars:
    archive: ""   # gputrain-VERSION-linux-x86_64.tar.gz, goes to /opt/gputrain
    job: @FILE@
    folder: @FOLDER@   # on each host; the run folder is on a file system that all share
  environment:
    PATH: /opt/gputrain/bin:/usr/local/bin:/usr/bin:/bin
    PET_NNODES: "{{ ansible_play_hosts_all | length }}"
    PET_NPROC_PER_NODE: "@RANKS@"
    PET_NODE_RANK: "{{ ansible_play_hosts_all.index(inventory_hostname) }}"
    PET_MASTER_ADDR: "{{ hostvars[ansible_play_hosts_all[0]].ansible_host | default(ansible_play_hosts_all[0]) }}"
    PET_MASTER_PORT: "29500"
    @VARIABLES@
  tasks:
    - name: folder of gputrain
      ansible.builtin.file: {path: /opt/gputrain, state: directory}
      when: archive | length > 0
    - name: gputrain
      ansible.builtin.unarchive: {src: "{{ archive }}", dest: /opt/gputrain, extra_opts: [--strip-components=1]}
      when: archive | length > 0
    - name: folder of the job
      ansible.builtin.file: {path: "{{ folder }}", state: directory}
    - name: job
      ansible.builtin.copy: {src: "{{ job }}", dest: "{{ folder }}/job.yaml"}
    - name: doctor
      ansible.builtin.command: {argv: [gputrain, doctor, job.yaml], chdir: "{{ folder }}"}
      changed_when: false
    - name: launch
      ansible.builtin.command: {argv: [sh, -c, !unsafe @COMMAND@], chdir: "{{ folder }}"}
      async: 31536000
      poll: 0
      register: launched
    - name: end
      ansible.builtin.async_status: {jid: "{{ launched.ansible_job_id }}"}
      register: ended
      until: ended is finished
      retries: 3153600
      delay: 10
)";

class Playbook final : public SchedulerFile {
 public:
  using SchedulerFile::SchedulerFile;
  static SchedulerAbilities abilities() { return {}; }

  std::string text(const JobFacts& facts) const override {
    std::string variables;
    for (const JobVariable& variable : facts.variables)
      variables += fmt::format("{}{}: \"{{{{ lookup('ansible.builtin.env', '{}') }}}}\"\n",
                               variable.is_needed ? "" : "# ", yaml_text(variable.name), variable.name);
    const std::string fetch =
        facts.fetched.empty() ? "" : shell_words({"gputrain", "fetch", facts.fetched}) + " || exit\n";
    return filled(kPlaybook,
                  {{"NODES", std::to_string(facts.nodes)},
                   {"NOTES", page_note(facts)},
                   {"LABEL", yaml_text(facts.label)},
                   {"FILE", "!unsafe " + yaml_text(facts.file)},
                   {"FOLDER", yaml_text("/srv/" + facts.label)},
                   {"RANKS", std::to_string(facts.ranks)},
                   {"VARIABLES", variables},
                   {"COMMAND", yaml_text(fetch + repeated(shell_words(launch_command(facts, "job.yaml"))))}});
  }
};

const config::Registered<Playbook, config::NoOptions> registered_ansible{schedulers(), "ansible",
                                                                         "Ansible: a playbook, one launcher per host"};

}  // namespace
}  // namespace gputrain::app
