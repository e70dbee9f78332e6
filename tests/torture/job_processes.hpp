// The processes of one job under torture: all that have the same FAULTS_LOG in their environment.
#pragma once

#include <string>

namespace torture {

/// Stops all processes of the job but this one. Returns when they stand still.
void freeze_others(const std::string& log);

void kill_others(const std::string& log);

}  // namespace torture
