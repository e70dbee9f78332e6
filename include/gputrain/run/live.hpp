// The pages that a run serves while it goes on, and the socket at which it takes orders.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "gputrain/device/gpu_readings.hpp"
#include "gputrain/device/host_load.hpp"
#include "gputrain/device/phase_clock.hpp"
#include "gputrain/job/job.hpp"
#include "gputrain/job/run_folder.hpp"
#include "gputrain/monitor/board.hpp"
#include "gputrain/net/server.hpp"
#include "gputrain/run/alert_watch.hpp"
#include "gputrain/setup/training_setup.hpp"
#include "gputrain/train/control_hook.hpp"
#include "gputrain/train/meter_hook.hpp"

namespace gputrain::app {

/// Rank 0 serves its board at log.metrics_port, and takes the orders of `gputrain ctl` at a socket in the run folder.
/// An address that is taken is a warning.
class Live {
 public:
  Live(const Job& job, TrainingSetup& setup, const RunFolder& folder);
  Live(const Live&) = delete;
  Live& operator=(const Live&) = delete;

  /// Starts to serve, and to follow alerts, which go to the recorder. Call when the run's step is known.
  void begin(const train::Progress& progress, double earlier_seconds, const train::Reporting& reporting);
  /// Follows alerts no longer. Call before the recorder is destroyed.
  void end_alerts() { alerts_.reset(); }
  /// Returns the text for the start page; empty: nothing to say.
  std::string text() const;

  /// Tells the webhook, and writes report.html on rank 0: the page, as the run ends. A disk error is a warning.
  void end(const monitor::Summary& summary);

  /// Notes how the time was spent, for report.html.
  void note_times(const train::Progress& progress);

  monitor::Board& board() noexcept { return board_; }
  device::PhaseClock& clock() noexcept { return clock_; }
  train::Control& control() noexcept { return control_; }
  /// Returns the host's load, this rank's memory and its GPU's newest readings, "gpu/power_watts" and so on; NaN for
  /// unknown values.
  monitor::Metrics readings();
  /// Returns host and local rank of each rank: "node2:1".
  const std::vector<std::string>& places() const noexcept { return places_; }

 private:
  net::Response answer(const net::Request& request) const;
  void serve_port();
  void serve_socket();

  const Job& job_;
  RunFolder folder_;
  at::Device device_;
  bool is_writer_;
  size_t local_rank_;
  std::vector<std::string> places_;
  monitor::Board board_;
  device::PhaseClock clock_;
  device::HostLoad load_;
  std::unique_ptr<device::GpuSampler> gpus_;  // null without a GPU
  train::Control control_;
  std::unique_ptr<monitor::Sink> webhook_;  // null: there is none
  // Last: their threads use the others.
  std::unique_ptr<net::Server> port_, socket_;
  std::unique_ptr<AlertWatch> alerts_;
};

}  // namespace gputrain::app
