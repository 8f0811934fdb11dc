// Pinned memory between the host and the GPU. Three ways: small uploads of a step and results that are waited
// for later, both in the order of the context's stream; and lanes, on which several threads bring weights.
// Everything is taken when a function returns: the caller's memory may change then.
#pragma once
#include <cuda_runtime.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include "backend/cuda/plugin.h"

namespace orlop::cuda {

// One thread's way for weights: two pieces of pinned memory in turn, and a stream of its own, so that one is
// filled while the other is on its way.
struct Lane {
  static constexpr size_t piece = size_t{4} << 20;
  cudaStream_t stream = nullptr;
  unsigned char* memory = nullptr;  // two pieces
  bool registered = false;          // the host's own huge pages
  cudaEvent_t sent[2] = {};
  cudaEvent_t done = nullptr;
  int turn = 0;
  size_t used = 0;  // of the piece whose turn it is
  bool busy = false, behind = false;  // it has copies that the main stream does not wait for yet
};

struct Rows {  // on the GPU; a block of memory is one row
  size_t count, bytes, stride;
};

void load_on(Lane* lane, void* to, const void* from, size_t bytes, PluginStatus* status);

class Transfers {
 public:
  bool open(PluginStatus* status);
  void close();  // when nothing is on its way any more

  void upload(cudaStream_t stream, void* to, const void* from, size_t bytes, PluginStatus* status);

  // The copy lands in pinned memory; wait() for its ticket, or a later one, brings it to to_host. Takes memory
  // only where more, or larger, downloads are open at once than ever before. 0 bytes: a mark in the stream.
  // Of more than most_landed bytes that are open at once the first are waited for.
  uint64_t download_later(cudaStream_t stream, void* to_host, const void* from, const Rows& rows, PluginStatus* status);
  void wait(uint64_t ticket, PluginStatus* status);

  // A lane for the calling thread, whose copies come after what the stream has now.
  Lane* enter(cudaStream_t stream, PluginStatus* status);
  void leave(Lane* lane);
  void end_lanes();  // when all were left
  // What comes on the stream now comes after the copies of all lanes that were left.
  void join(cudaStream_t stream, PluginStatus* status);

 private:
  static constexpr size_t slot_bytes = size_t{256} << 10;
  static constexpr int slots = 16;
  static constexpr size_t most_landed = size_t{64} << 20;
  struct Landing {
    unsigned char* memory = nullptr;
    size_t room = 0, bytes = 0;
    cudaEvent_t landed = nullptr;
    void* to = nullptr;
    uint64_t ticket = 0;  // 0: free
  };
  bool next_slot(cudaStream_t stream, PluginStatus* status);
  Landing* landing_for(size_t bytes, PluginStatus* status);

  std::mutex upload_mutex_;  // guards the ring
  unsigned char* ring_ = nullptr;
  cudaEvent_t sent_[slots] = {};
  int slot_ = 0;
  size_t used_ = 0;  // of the slot

  std::mutex landing_mutex_;
  std::vector<Landing> landings_;
  uint64_t tickets_ = 0;

  std::mutex lane_mutex_;
  std::vector<Lane*> lanes_;
  cudaEvent_t before_ = nullptr;       // where the stream stood when a lane was entered
  std::atomic<bool> behind_{false};    // of any lane
};

}  // namespace orlop::cuda
