package io.orlop;

import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;

/**
 * Native calls that wait (loading, saving a state) hold their thread, and with it the carrier of a
 * virtual one. Virtual threads therefore have them done by a platform thread.
 */
final class Blocking {
  private Blocking() {}

  static final ExecutorService THREADS =
      Executors.newCachedThreadPool(Thread.ofPlatform().daemon().name("orlop-call-", 0).factory());

  static <T> T call(Callable<T> work) {
    try {
      if (!Thread.currentThread().isVirtual()) return work.call();
      return THREADS.submit(work).get();
    } catch (ExecutionException e) {
      throw rethrown(e.getCause());
    } catch (InterruptedException e) {
      throw interrupted();
    } catch (Exception e) {
      throw rethrown(e);
    }
  }

  /** Waits for a stage; what it failed with is thrown as it is. */
  static <T> T join(CompletionStage<T> stage) {
    CompletableFuture<T> future = stage.toCompletableFuture();
    try {
      return future.get();
    } catch (ExecutionException e) {
      throw rethrown(e.getCause());
    } catch (InterruptedException e) {
      throw interrupted();
    }
  }

  static CancelledException interrupted() {
    Thread.currentThread().interrupt();
    return new CancelledException("the waiting thread was interrupted; what it waited for goes on");
  }

  static RuntimeException rethrown(Throwable t) {
    if (t instanceof CompletionException && t.getCause() != null) t = t.getCause();
    if (t instanceof RuntimeException e) return e;
    if (t instanceof Error e) throw e;
    return new IllegalStateException(t);
  }
}
