// Marks the types and functions a plug-in may use; everything else stays hidden inside libgputrain.so.
#pragma once

#define GPUTRAIN_API __attribute__((visibility("default")))
