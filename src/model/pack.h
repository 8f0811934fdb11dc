// Fills a decoder's weight storage: first a plan of what lies where, then all of it in parallel.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "base/quant_rows.h"
#include "format/checkpoint.h"
#include "model/model.h"
#include "ops/kernels.h"

namespace orlop {

struct Linear;

class PackPlan {
 public:
  struct Piece {
    const FileTensor* tensor;  // floats or ggml's types; unused where quant is set
    int64_t rows;
    const std::vector<int32_t>* row_map;  // file row of each packed row, or null
    const QuantRows* quant = nullptr;     // kept by keep()
    std::vector<const FileTensor*> read_by_quant;
    bool read_again = false;  // by another plan: its tensors stay in memory
  };

  // The pieces' rows one after another, as float32. *slot is set by run().
  void add_vector(float** slot, int64_t n, std::vector<Piece> pieces);
  // Numbers on the device, *slot is set by run().
  void add_indices(const int32_t** slot, std::vector<int32_t> values);
  // linear->desc is complete but for k_map; linear->packed is set by run().
  void add_linear(Linear* linear, const Exec& exec, std::vector<Piece> pieces);

  // Lives until run() has ended with it.
  const QuantRows* keep(std::unique_ptr<QuantRows> rows);

  size_t bytes() const { return bytes_; }
  uint64_t file_bytes() const;  // that run() reads: what it adds to bytes_done

  // Packs everything into storage (bytes() of device memory) on exec.threads threads.
  void run(unsigned char* storage, const Exec& exec, LoadProgress* progress);

 private:
  struct Vector {
    float** slot;
    int64_t n;
    std::vector<Piece> pieces;
    size_t offset;
  };
  struct Indices {
    const int32_t** slot;
    std::vector<int32_t> values;
    size_t offset;
  };
  struct Matrix {
    Linear* linear;
    std::vector<Piece> pieces;
    size_t offset;
    int64_t tiles;
  };
  struct Job {  // tiles [begin, end) of a matrix
    size_t matrix;
    int64_t begin, end;
  };
  class Runner;

  size_t reserve(size_t bytes);
  template <class Visit>
  static void each_tensor(const Piece& piece, Visit&& visit);
  void upload_vectors(unsigned char* storage, const Exec& exec, LoadProgress* progress);

  std::vector<Vector> vectors_;
  std::vector<Indices> indices_;
  std::vector<std::unique_ptr<QuantRows>> quant_;
  std::vector<Matrix> matrices_;
  size_t bytes_ = 0;
};

}  // namespace orlop
