// Pinned memory between the host and the GPU. Four ways: small uploads of a step and results that are waited
// for later, both in the order of the context's stream; pages of the cache, beside it; and lanes, on which several
// threads bring weights. Everything is taken when a function returns: the caller's memory may change then.
#pragma once
#include <cuda_runtime.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
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

// Rows of `rows`, from and to where they lie so far apart.
cudaError_t copy_strided(void* to, size_t to_stride, const void* from, size_t from_stride, const Rows& rows, cudaMemcpyKind kind, cudaStream_t stream);

void load_on(Lane* lane, void* to, const void* from, size_t bytes, PluginStatus* status);

// Small uploads through pinned memory, in the order of the stream. One stream's.
class Ring {
 public:
  explicit Ring(bool between_kernels) : between_kernels_(between_kernels) {}
  bool open(PluginStatus* status);
  void close();
  void upload(cudaStream_t stream, void* to, const void* from, size_t bytes, PluginStatus* status);

 private:
  static constexpr size_t slot_bytes = size_t{256} << 10;
  static constexpr int slots = 16;
  bool next_slot(cudaStream_t stream, PluginStatus* status);
  const bool between_kernels_;  // then few bytes wait for no copy engine
  std::mutex mutex_;  // guards what follows
  unsigned char* memory_ = nullptr;
  cudaEvent_t sent_[slots] = {};
  int slot_ = 0;
  size_t used_ = 0;  // of the slot
};

// Results that are waited for later. One stream's.
class Landings {
 public:
  explicit Landings(bool between_kernels) : between_kernels_(between_kernels) {}
  void close();
  // The copy lands in pinned memory; wait() for its ticket, or a later one, brings it to to_host. Takes memory
  // only where more, or larger, downloads are open at once than ever before. 0 bytes: a mark in the stream.
  // Of more than most_landed bytes that are open at once the first are waited for.
  uint64_t download_later(cudaStream_t stream, void* to_host, const void* from, const Rows& rows, PluginStatus* status);
  void wait(uint64_t ticket, PluginStatus* status);

 private:
  static constexpr size_t most_landed = size_t{64} << 20;
  const bool between_kernels_;
  struct Landing {
    unsigned char* memory = nullptr;
    size_t room = 0, bytes = 0;
    cudaEvent_t landed = nullptr;
    void* to = nullptr;
    uint64_t ticket = 0;  // 0: free
  };
  Landing* landing_for(size_t bytes, PluginStatus* status);
  std::mutex mutex_;
  std::vector<Landing> landings_;
  uint64_t tickets_ = 0;
};

// Blocks of memory, as pages of the cache, between the GPU and the host while steps run: on streams of their own, by
// way of memory on the GPU. A step that writes to a block waits for no bus: what was in it has been put aside. What
// comes goes over the bus beside the steps before, and to its place in the order of the calls.
class Pages {
 public:
  void close();
  // The ticket is for wait() here. What `main` has now is in the block; what comes on it later may change it.
  // False: no memory to put it aside.
  bool out(cudaStream_t main, void* to_host, const void* from, const Rows& rows, uint64_t* ticket, PluginStatus* status);
  void wait(uint64_t ticket, PluginStatus* status) { landings_.wait(ticket, status); }
  bool in(cudaStream_t main, void* to, const void* from_host, const Rows& rows, PluginStatus* status);

 private:
  static constexpr int most_slots = 32;
  static constexpr size_t most_aside = size_t{64} << 20;  // of each way
  struct Way {
    cudaStream_t stream = nullptr;
    unsigned char* memory = nullptr;  // [slots, slot_bytes] on the GPU
    size_t slot_bytes = 0;
    int slots = 0, next = 0;
    bool missing = false;  // its memory could not be had
    cudaEvent_t filled[most_slots] = {}, emptied[most_slots] = {};
  };
  bool prepare(Way* way, size_t bytes);
  static void close(Way* way);
  std::mutex mutex_;  // guards what follows
  Way out_, in_;
  Ring ring_{false};
  bool ring_open_ = false;
  Landings landings_{false};
};

class Transfers {
 public:
  bool open(PluginStatus* status);
  void close();  // when nothing is on its way any more

  void upload(cudaStream_t stream, void* to, const void* from, size_t bytes, PluginStatus* status) { ring_.upload(stream, to, from, bytes, status); }
  // Tickets as Landings has them, of the context's stream; and of pages, which those of 0 bytes cover and others do not.
  uint64_t download_later(cudaStream_t stream, void* to_host, const void* from, const Rows& rows, PluginStatus* status);
  uint64_t page_out(cudaStream_t stream, void* to_host, const void* from, const Rows& rows, PluginStatus* status);
  void page_in(cudaStream_t stream, void* to, const void* from_host, const Rows& rows, PluginStatus* status);
  void wait(uint64_t ticket, PluginStatus* status);

  // A lane for the calling thread, whose copies come after what the stream has now.
  Lane* enter(cudaStream_t stream, PluginStatus* status);
  void leave(Lane* lane);
  void end_lanes();  // when all were left
  // What comes on the stream now comes after the copies of all lanes that were left.
  void join(cudaStream_t stream, PluginStatus* status);

 private:
  Ring ring_{true};
  Landings landings_{true};
  Pages pages_;
  std::mutex ticket_mutex_;  // guards what follows
  uint64_t page_ticket_ = 0;
  std::map<uint64_t, uint64_t> marks_;  // tickets of 0 bytes and the last of pages before each

  std::mutex lane_mutex_;
  std::vector<Lane*> lanes_;
  cudaEvent_t before_ = nullptr;       // where the stream stood when a lane was entered
  std::atomic<bool> behind_{false};    // of any lane
};

// Host memory that the GPU reads and writes by itself.
bool make_pinned(unsigned char** memory, size_t bytes, PluginStatus* status);
bool make_event(cudaEvent_t* event, PluginStatus* status);

}  // namespace orlop::cuda
