// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_ANALYZER_LOG_BLOCK_TABLE_H_
#define DSTRACE_ANALYZER_LOG_BLOCK_TABLE_H_

// The blocks that a chunk has named in full: the reader's mirror of the
// writer's dictionary (proto/FORMAT.md, tensor_alloc and tensor_free).
//
// Guarantee: any bytes may be given. Not thread-safe.

#include <cstdint>
#include <vector>

namespace dstrace::log {

class BlockTable {
 public:
  struct Block {
    uint64_t address = 0;
    uint64_t size = 0;  // bytes
    uint32_t device = 0;
  };

  BlockTable();

  // At the beginning of a chunk.
  void Clear();

  // The block named at `at`, which nothing follows up to `end`. Returns one
  // past it; nullptr: malformed.
  const uint8_t* Read(const uint8_t* at, const uint8_t* end, Block* block);

 private:
  const uint8_t* ReadLiteral(const uint8_t* at, const uint8_t* end,
                             Block* block) const;

  Block literal_;  // the last one of the chunk
  std::vector<Block> blocks_;
};

}  // namespace dstrace::log

#endif  // DSTRACE_ANALYZER_LOG_BLOCK_TABLE_H_
