// Products of very few rows of activations that follow one another, in one kernel: see chain_kernel.cuh.
#pragma once
#include "backend/cuda/stream.cuh"

namespace orlop::cuda {

constexpr int32_t chain_rows = 4;  // of activations, at most
constexpr int chain_most = 6;      // products of one kernel

struct ChainState;  // of a context: chain_parts.cuh

// An op of a chain.
struct ChainOp {
  StreamArgs a;
  int32_t source;  // the op of the chain that makes its input; below 0: it is there
  int32_t kept;    // whether its output is the input of one that follows
  const float* norm;  // with these weights, which are applied on the way; null: as it is
};

struct Chain {
  ChainOp op[chain_most];
  ChainState* state;
  int32_t count;
  int32_t stages;  // of the ring
};

// Whether products of so many rows are chain()'s, as a rule: it norms what they take.
inline bool chain_rows_of(const Context& c, int64_t m) { return c.chain && m <= chain_rows; }

// False: not such a product, or there is too little shared memory. Its blocks wait for each other.
bool chain(Context* c, const StreamArgs& a);

// Room for outputs on their way, of a context that may wait; null: there is no memory for it.
ChainState* make_chain_state(cudaStream_t stream);

}  // namespace orlop::cuda
