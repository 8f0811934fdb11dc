package io.orlop;

import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ForkJoinPool;
import java.util.concurrent.atomic.AtomicInteger;

/** Takes a request's outputs as the poller tells of them, and completes a future at the end. */
final class Completion implements Runnable {
  final CompletableFuture<Result> future = new CompletableFuture<>();
  private final Request request;
  private final Collector all;
  private final AtomicInteger calls = new AtomicInteger();
  private boolean ended;

  Completion(Request request, int samples) {
    this.request = request;
    all = new Collector(samples);
    future.whenComplete(
        (r, e) -> {
          if (future.isCancelled()) request.cancelQuietly();
        });
  }

  /** By one thread at a time: who comes beside it leaves it another round. */
  @Override
  public void run() {
    if (calls.getAndIncrement() != 0) return;
    int seen = 1;
    do {
      if (!ended) take();
      seen = calls.addAndGet(-seen);
    } while (seen != 0);
  }

  private void take() {
    try {
      for (Output o; (o = request.takeNow()) != null; ) all.add(o);
      if (!request.isDone()) {
        RuntimeException broken = request.broken();
        if (broken != null) fail(broken);
        return;
      }
      RequestStatus status = request.status();
      OrlopException failure = all.failure();
      if (failure != null) fail(failure);
      else end(() -> future.complete(all.result(status)));
    } catch (RuntimeException | Error e) {
      fail(e);
    }
  }

  private void fail(Throwable t) {
    end(() -> future.completeExceptionally(t));
  }

  /** What hangs on the future is the caller's code: it must not hold the poller. */
  private void end(Runnable completion) {
    ended = true;
    request.dropListener();
    ForkJoinPool.commonPool().execute(completion);
  }
}
