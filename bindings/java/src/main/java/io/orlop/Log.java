package io.orlop;

import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_BYTE;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemorySegment;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodType;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.locks.ReentrantLock;

/** The library's log. It is silent until a sink is set. */
public final class Log {
  /** How grave a line is. */
  public enum Level {
    /** Something failed. */
    ERROR,
    /** Something is not as it should be. */
    WARNING,
    /** What happens. */
    INFO,
    /** Details. */
    DEBUG
  }

  /** Receives lines of the log. */
  @FunctionalInterface
  public interface Sink {
    /**
     * One line. May be called from any thread, also concurrently. It may use the library but not
     * set the log. What it throws is dropped.
     *
     * @param level how grave it is
     * @param text the line, without a newline
     */
    void line(Level level, String text);
  }

  private static final Level[] LEVELS = Level.values();
  private static final ReentrantLock LOCK = new ReentrantLock();
  private static final ThreadLocal<Boolean> INSIDE = new ThreadLocal<>();
  private static volatile Sink sink;

  /** Made once: a stub must outlive every thread that may be inside it. */
  private static final MemorySegment STUB = stub();

  private Log() {}

  /**
   * Sends lines to a sink.
   *
   * @param level the least grave level that is sent
   * @param to the sink, in place of the former one; when this returns the former one is not running
   */
  public static void set(Level level, Sink to) {
    java.util.Objects.requireNonNull(to, "to");
    change(to, STUB, level.ordinal() + 1);
  }

  /** Silences the library. When it returns the former sink is not running. */
  public static void off() {
    change(null, MemorySegment.NULL, 0);
  }

  private static void change(Sink to, MemorySegment stub, int level) {
    if (INSIDE.get() != null) throw new IllegalStateException("a log sink must not set the log");
    LOCK.lock();
    try {
      Native.logSet(MemorySegment.NULL, MemorySegment.NULL, 0); // the former sink has ended
      sink = to;
      if (to != null) Native.logSet(stub, MemorySegment.NULL, level);
    } finally {
      LOCK.unlock();
    }
  }

  /** Called by the library. An exception must not leave it: it would end the process. */
  private static void line(MemorySegment user, int level, MemorySegment text, long length) {
    try {
      Sink to = sink;
      if (to == null) return;
      INSIDE.set(true);
      try {
        byte[] bytes = Call.view(text, length).toArray(JAVA_BYTE);
        Level of = LEVELS[Math.clamp(level, 1, LEVELS.length) - 1];
        to.line(of, new String(bytes, StandardCharsets.UTF_8));
      } finally {
        INSIDE.remove();
      }
    } catch (Throwable t) {
      // a log line is not worth more than being lost
    }
  }

  @SuppressWarnings("restricted")
  private static MemorySegment stub() {
    try {
      var type = MethodType.methodType(void.class, MemorySegment.class, int.class, MemorySegment.class, long.class);
      return Linker.nativeLinker()
          .upcallStub(
              MethodHandles.lookup().findStatic(Log.class, "line", type),
              FunctionDescriptor.ofVoid(ADDRESS, JAVA_INT, ADDRESS, JAVA_LONG),
              Arena.global());
    } catch (ReflectiveOperationException e) {
      throw new ExceptionInInitializerError(e);
    }
  }
}
