// What a process has from whoever started it, besides its words and variables.
#pragma once

namespace gputrain {

/// Undoes what a careless parent hands down: standard streams that are closed, whose numbers the next files to be
/// opened would get, and with them what is printed; ended children that the kernel is to collect, whose ends nobody
/// would hear of; signals that are blocked. And SIGXFSZ is ignored, which would end a process that writes past the
/// limit on file sizes (`ulimit -f`) without a word: the write fails instead. Before anything is opened.
void mend_inheritance();

}  // namespace gputrain
