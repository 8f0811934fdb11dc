package io.orlop;

import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.LockSupport;

/**
 * The completion queue of an engine and the one thread that waits on it. Whoever waits for a request
 * parks in Java, which costs a virtual thread no carrier; the poller wakes it.
 */
final class Poller implements Runnable {
  /** What the poller tells a request. It refers to the request only while one consumes by itself. */
  static final class Signal {
    volatile boolean raised;
    volatile Thread waiter;
    volatile Runnable listener;

    void raise() {
      raised = true;
      Runnable l = listener;
      if (l != null) l.run();
      else LockSupport.unpark(waiter);
    }
  }

  /**
   * The thread looks up from its wait this often (microseconds), for only it may release the queue:
   * a release beside a wait that has not quite begun would leave that one a dead queue.
   */
  private static final long LOOK_UP = 500_000;

  private final MemorySegment queue;
  private final ConcurrentHashMap<Long, Signal> signals = new ConcurrentHashMap<>();
  private final AtomicLong lastTag = new AtomicLong();
  private final AtomicInteger users = new AtomicInteger(1); // the engine, and each request

  Poller(MemorySegment engine) {
    try (Call c = new Call()) {
      c.check(Native.queueCreate(engine, c.out, c.error));
      queue = c.result();
    }
    Thread.ofPlatform().daemon().name("orlop-poller").start(this);
  }

  MemorySegment queue() {
    return queue;
  }

  /** Makes a tag whose news go to the signal; undone by {@link #forget}. */
  long register(Signal signal) {
    int n;
    do {
      n = users.get();
      if (n == 0) throw new ClosedException("the engine is closed");
    } while (!users.compareAndSet(n, n + 1));
    long tag = lastTag.incrementAndGet();
    signals.put(tag, signal);
    return tag;
  }

  void forget(long tag) {
    signals.remove(tag);
    leave();
  }

  /** The engine's part, or a request's, ends. */
  void leave() {
    users.decrementAndGet();
  }

  int descriptor() {
    return Native.queueFd(queue);
  }

  @Override
  public void run() {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment tag = arena.allocate(JAVA_LONG);
      MemorySegment error = Call.sized(arena.allocate(Struct.ERROR.size, 8), Struct.ERROR);
      while (users.get() > 0) {
        if (Call.check(Native.queueWait(queue, LOOK_UP, tag, error), error) != Status.OK) continue;
        Signal signal = signals.get(tag.get(JAVA_LONG, 0));
        if (signal != null) tell(signal);
      }
    } finally {
      Native.queueRelease(queue);
    }
  }

  /** A listener completes futures of the caller; nothing that goes wrong there ends this thread. */
  private static void tell(Signal signal) {
    try {
      signal.raise();
    } catch (Throwable t) {
      Thread thread = Thread.currentThread();
      thread.getUncaughtExceptionHandler().uncaughtException(thread, t);
    }
  }
}
