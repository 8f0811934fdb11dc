package io.orlop;

import java.lang.foreign.MemorySegment;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.lang.ref.Cleaner;

/**
 * A native handle and the count of calls inside it. Closing marks it; the native object is freed when
 * the last call has left, so that close is safe at any time and from any thread. It never refers to
 * the object that owns it: it is that object's cleaning action too.
 */
abstract class Handle implements Runnable {
  static final Cleaner CLEANER = Cleaner.create();

  private static final VarHandle STATE;

  static {
    try {
      STATE = MethodHandles.lookup().findVarHandle(Handle.class, "state", int.class);
    } catch (ReflectiveOperationException e) {
      throw new ExceptionInInitializerError(e);
    }
  }

  private static final int CLOSED = Integer.MIN_VALUE;

  private final MemorySegment address;
  private final String name;
  private volatile int state; // calls inside; the sign bit says closed

  Handle(MemorySegment address, String name) {
    this.address = address;
    this.name = name;
  }

  /** Frees the native object; called once. */
  abstract void free(MemorySegment address);

  /** Counts a call in and answers the native handle; each enter needs an {@link #exit}. */
  final MemorySegment enter() {
    for (;;) {
      int s = state;
      if (s < 0) throw new ClosedException("the " + name + " is closed");
      if (STATE.compareAndSet(this, s, s + 1)) return address;
    }
  }

  final void exit() {
    if ((int) STATE.getAndAdd(this, -1) - 1 == CLOSED) free(address);
  }

  final boolean isClosed() {
    return state < 0;
  }

  final void close() {
    if ((int) STATE.getAndBitwiseOr(this, CLOSED) == 0) free(address);
  }

  @Override
  public void run() {
    close();
  }
}
