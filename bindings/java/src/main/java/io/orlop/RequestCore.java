package io.orlop;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.util.concurrent.ConcurrentLinkedQueue;

/** A request's native side: its handle, and the memory that its outputs are read through. */
final class RequestCore extends Handle {
  /** An output and an error. Requests that ended leave theirs to later ones. */
  private record Scratch(MemorySegment output, MemorySegment error) {
    private static final ConcurrentLinkedQueue<Scratch> FREE = new ConcurrentLinkedQueue<>();

    static Scratch take() {
      Scratch s = FREE.poll();
      if (s != null) return s;
      Arena arena = Arena.global();
      return new Scratch(
          Call.sized(arena.allocate(Struct.OUTPUT.size, 8), Struct.OUTPUT),
          Call.sized(arena.allocate(Struct.ERROR.size, 8), Struct.ERROR));
    }
  }

  final Poller.Signal signal;
  private final Poller poller;
  private final long tag;
  private final Scratch scratch = Scratch.take();

  RequestCore(MemorySegment address, Poller poller, long tag, Poller.Signal signal) {
    super(address, "request");
    this.poller = poller;
    this.tag = tag;
    this.signal = signal;
  }

  /** orlop_get without waiting: by the one consumer only. The status; with OK the output is filled. */
  int get(MemorySegment address) {
    return Native.get(address, 0, scratch.output, scratch.error);
  }

  MemorySegment output() {
    return scratch.output;
  }

  MemorySegment error() {
    return scratch.error;
  }

  @Override
  void free(MemorySegment address) {
    poller.forget(tag);
    Native.requestRelease(address);
    Scratch.FREE.add(scratch);
  }

  @Override
  public void run() {
    super.run();
    signal.raise(); // who waits finds it closed
  }
}
