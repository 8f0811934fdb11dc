#include "model/pack.h"

#include <csignal>
#include <mutex>
#include <system_error>
#include <thread>

#include "base/checked.h"
#include "format/quant_tensors.h"
#include "model/weights.h"
#include "ops/device.h"

namespace orlop {
namespace {

// Threads of ours take no signal of the host's.
class BlockSignals {
 public:
  BlockSignals() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~BlockSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_;
};

}  // namespace

size_t PackPlan::reserve(size_t bytes) {
  // Tiles of different matrices never share a cache line, whatever its size.
  const size_t offset = round_up(bytes_, size_t{256});
  bytes_ = checked_add(offset, bytes, "weights");
  return offset;
}

void PackPlan::add_vector(float** slot, int64_t n, std::vector<Piece> pieces) {
  const size_t offset = reserve(static_cast<size_t>(n) * sizeof(float));
  vectors_.push_back({slot, n, std::move(pieces), offset});
}

void PackPlan::add_indices(const int32_t** slot, std::vector<int32_t> values) {
  const size_t offset = reserve(values.size() * sizeof(int32_t));
  indices_.push_back({slot, std::move(values), offset});
}

const QuantRows* PackPlan::keep(std::unique_ptr<QuantRows> rows) {
  quant_.push_back(std::move(rows));
  return quant_.back().get();
}

// The tensors that a piece of a matrix is read from.
template <class Visit>
void PackPlan::each_tensor(const Piece& piece, Visit&& visit) {
  if (!piece.quant) visit(*piece.tensor);
  for (const FileTensor* t : piece.read_by_quant) visit(*t);
}

void PackPlan::add_linear(Linear* linear, const Exec& exec, std::vector<Piece> pieces) {
  const size_t offset = reserve(exec.kernels->linear_bytes(linear->desc));
  matrices_.push_back(
      {linear, std::move(pieces), offset, exec.kernels->linear_tiles(linear->desc)});
}

void PackPlan::upload_vectors(unsigned char* storage, const Exec& exec, LoadProgress* progress) {
  std::vector<float> values;
  for (const Vector& v : vectors_) {
    values.clear();
    for (const Piece& piece : v.pieces) {
      for (int64_t i = 0; i < piece.rows; ++i)
        values.push_back(float_element(
            *piece.tensor, piece.row_map ? (*piece.row_map)[static_cast<size_t>(i)] : i));
      if (progress) progress->bytes_done += piece.tensor->data.size();
    }
    *v.slot = reinterpret_cast<float*>(storage + v.offset);
    exec.device->upload(*v.slot, values.data(), values.size() * sizeof(float));
  }
  for (const Indices& i : indices_) {
    auto* to = reinterpret_cast<int32_t*>(storage + i.offset);
    exec.device->upload(to, i.values.data(), i.values.size() * sizeof(int32_t));
    *i.slot = to;
  }
}

// Hands out jobs to threads and remembers the first error.
class PackPlan::Runner {
 public:
  Runner(PackPlan& plan, const Exec& exec, LoadProgress* progress)
      : plan_(plan), exec_(exec), progress_(progress), left_(plan.matrices_.size()) {
    for (size_t m = 0; m < plan.matrices_.size(); ++m) {
      const int64_t tiles = plan.matrices_[m].tiles;
      const int64_t step = std::max<int64_t>(1, div_up<int64_t>(tiles, 4L * exec.threads));
      for (int64_t t = 0; t < tiles; t += step) jobs_.push_back({m, t, std::min(t + step, tiles)});
      left_[m] = div_up(tiles, step);
    }
  }

  void run() {
    std::vector<std::thread> helpers;
    {
      BlockSignals block;
      try {
        for (int i = 1; i < exec_.threads; ++i) helpers.emplace_back([this] { work(); });
      } catch (const std::system_error&) {
        // Fewer threads, same result.
      }
    }
    work();
    for (std::thread& t : helpers) t.join();
    if (error_) std::rethrow_exception(error_);
  }

 private:
  void work() noexcept {
    try {
      for (;;) {
        const size_t i = next_++;
        if (i >= jobs_.size() || failed_) return;
        if (progress_ && progress_->cancel) fail(Status::cancelled, "loading was cancelled");
        pack(jobs_[i]);
      }
    } catch (...) {
      std::lock_guard lock(mutex_);
      if (!error_) error_ = std::current_exception();
      failed_ = true;
    }
  }

  void pack(const Job& job) {
    const Matrix& m = plan_.matrices_[job.matrix];
    LinearSource source;
    for (size_t p = 0; p < m.pieces.size(); ++p) {
      const Piece& piece = m.pieces[p];
      if (piece.row_map) source.row_map[p] = piece.row_map->data();
      source.quant[p] = piece.quant;
      if (piece.quant) continue;
      source.rows[p] = reinterpret_cast<const unsigned char*>(piece.tensor->data.data());
      source.row_bytes[p] = piece.tensor->data.size() / static_cast<size_t>(piece.rows);
    }
    exec_.kernels->linear_pack(m.linear->desc, source, job.begin, job.end, m.linear->packed);

    {
      std::lock_guard lock(mutex_);
      if (--left_[job.matrix]) return;
    }
    // Taking a gigabyte out of the page tables takes a while, in which the others go on.
    for (const Piece& piece : m.pieces)
      each_tensor(piece, [&](const FileTensor& t) {
        if (!piece.read_again) t.file->drop(t.data);
        if (progress_) progress_->bytes_done += t.data.size();
      });
  }

  PackPlan& plan_;
  const Exec& exec_;
  LoadProgress* progress_;
  std::vector<Job> jobs_;
  std::atomic<size_t> next_{0};
  std::atomic<bool> failed_{false};
  std::mutex mutex_;            // guards left_ and error_
  std::vector<int64_t> left_;   // jobs left of each matrix
  std::exception_ptr error_;
};

uint64_t PackPlan::file_bytes() const {
  uint64_t total = 0;
  for (const Vector& v : vectors_)
    for (const Piece& p : v.pieces) total += p.tensor->data.size();
  for (const Matrix& m : matrices_)
    for (const Piece& p : m.pieces)
      each_tensor(p, [&](const FileTensor& t) { total += t.data.size(); });
  return total;
}

void PackPlan::run(unsigned char* storage, const Exec& exec, LoadProgress* progress) {
  for (const Matrix& m : matrices_) m.linear->packed = storage + m.offset;
  Runner(*this, exec, progress).run();
  exec.device->loaded();
  // Last: vectors lie all over the storage and would have its huge pages filled while the whole file
  // is still there.
  upload_vectors(storage, exec, progress);
}

}  // namespace orlop
