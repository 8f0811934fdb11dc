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
    volatile OrlopException failure; // set before it is raised, when the poller cannot go on

    void raise() {
      raised = true;
      Runnable l = listener;
      if (l != null) l.run();
      else LockSupport.unpark(waiter);
    }
  }

  /**
   * While requests live, the thread looks up from its wait this often (microseconds): only it may
   * release the queue, for a release beside a wait that has not quite begun would leave that one a
   * dead queue. Without requests it parks, and does not wake until it is needed.
   */
  private static final long LOOK_UP = 500_000;

  private final MemorySegment queue;
  private final ConcurrentHashMap<Long, Signal> signals = new ConcurrentHashMap<>();
  private final AtomicLong lastTag = new AtomicLong();
  private final AtomicInteger users = new AtomicInteger(1); // the engine, and each request
  private final Thread thread;
  private volatile boolean parked;
  private volatile OrlopException failure;

  Poller(MemorySegment engine) {
    try (Call c = new Call()) {
      c.check(Native.queueCreate(engine, c.out, c.error));
      queue = c.result();
    }
    thread = Thread.ofPlatform().daemon().name("orlop-poller").start(this);
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
    OrlopException broken = failure; // after the put: else nobody would tell the signal
    if (broken != null) {
      forget(tag);
      throw broken.again();
    }
    wake();
    return tag;
  }

  void forget(long tag) {
    signals.remove(tag);
    leave();
  }

  /** The engine's part, or a request's, ends. */
  void leave() {
    if (users.decrementAndGet() == 0) wake();
  }

  private void wake() {
    if (parked) LockSupport.unpark(thread);
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
        if (signals.isEmpty() || failure != null) {
          rest();
          continue;
        }
        int status = Native.queueWait(queue, LOOK_UP, tag, error);
        if (status == Status.OK) {
          Signal signal = signals.get(tag.get(JAVA_LONG, 0));
          if (signal != null) tell(signal);
        } else if (status < 0) {
          fail(OrlopException.of(status, Call.message(error)));
        }
      }
    } finally {
      Native.queueRelease(queue);
    }
  }

  /** Until there is a request, or no user. */
  private void rest() {
    parked = true;
    while (users.get() > 0 && (signals.isEmpty() || failure != null)) LockSupport.park(this);
    parked = false;
  }

  /** Nothing is told any more: whoever waits learns why. The queue stays until nobody has it. */
  private void fail(OrlopException why) {
    failure = why;
    for (Signal signal : signals.values()) {
      signal.failure = why;
      tell(signal);
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
