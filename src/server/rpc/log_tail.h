// Finds where the last lines of a log begin, reading it once from the front a block at a time.
//
// Threads: one at a time. Memory: one entry for each block.
#ifndef GPULAYER_SERVER_RPC_LOG_TAIL_H_
#define GPULAYER_SERVER_RPC_LOG_TAIL_H_

#include <cstdint>
#include <vector>

#include "model/log_frame.h"

namespace gpulayer::rpc {

class LogTail {
 public:
  // The whole frames of one block that are to be shown; the first lies at or behind `offset`, where
  // the block begins.
  void Add(std::int64_t offset, const std::vector<FrameView>& shown);

  struct Start {
    std::int64_t offset = 0;         // of a block
    std::int64_t skip_newlines = 0;  // what is shown begins behind that many newlines from there
  };
  // For the last `lines` lines of what was added, of which `end` is the end. A last line without
  // newline counts.
  Start Find(std::int64_t lines, std::int64_t end) const;

 private:
  struct Block {
    std::int64_t offset;
    std::int64_t newlines;
  };
  std::vector<Block> blocks_;
  bool any_ = false;
  bool ends_with_newline_ = false;
};

// Takes the first `*newlines` lines off the front of `data`, counting `*newlines` down.
std::string_view SkipLines(std::string_view data, std::int64_t* newlines);

}  // namespace gpulayer::rpc

#endif  // GPULAYER_SERVER_RPC_LOG_TAIL_H_
