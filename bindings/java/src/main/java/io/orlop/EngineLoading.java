package io.orlop;

import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.lang.foreign.MemorySegment;
import java.util.concurrent.CompletableFuture;
import java.util.function.Consumer;

/** A model that is being loaded by a thread of its own. */
public final class EngineLoading implements AutoCloseable {
  private static final long LOOK_UP = 20_000; // microseconds between looks at progress and cancel

  private final CompletableFuture<Engine> future = new CompletableFuture<>();
  private volatile Progress progress = new Progress(false, 0, 0);
  private volatile boolean cancelled;

  EngineLoading(MemorySegment engine, Consumer<Progress> listener) {
    future.whenComplete(
        (e, t) -> {
          if (future.isCancelled()) cancelled = true;
        });
    Thread.ofPlatform().daemon().name("orlop-load").start(() -> load(engine, listener));
  }

  /**
   * The engine, once it is loaded. It fails with what loading failed with, or with a {@link
   * CancelledException}. Cancelling it cancels the load.
   *
   * @return the future
   */
  public CompletableFuture<Engine> future() {
    return future;
  }

  /**
   * How far it has come.
   *
   * @return the latest progress
   */
  public Progress progress() {
    return progress;
  }

  /** Cancels the load if it has not ended. An engine that is loaded is not closed by this. */
  @Override
  public void close() {
    cancelled = true;
  }

  private void load(MemorySegment engine, Consumer<Progress> listener) {
    boolean kept = false;
    try (Call c = new Call()) {
      MemorySegment p = c.struct(Struct.PROGRESS);
      int status;
      do {
        if (cancelled) throw new CancelledException("the load was cancelled");
        status = Native.engineWait(engine, LOOK_UP, p, c.error);
        report(p, listener);
      } while (status == Status.TIMEOUT);
      c.check(status);
      Engine loaded = new Engine(engine);
      kept = true;
      if (!future.complete(loaded)) loaded.close();
    } catch (Throwable t) {
      if (!kept) Native.engineRelease(engine);
      future.completeExceptionally(t);
    }
  }

  /** A listener's fault is the caller's own: it ends the load with what it threw. */
  private void report(MemorySegment p, Consumer<Progress> listener) {
    Struct s = Struct.PROGRESS;
    progress =
        new Progress(
            p.get(JAVA_INT, s.at("done")) != 0,
            p.get(JAVA_LONG, s.at("bytes_done")),
            p.get(JAVA_LONG, s.at("bytes_total")));
    if (listener != null) listener.accept(progress);
  }
}
