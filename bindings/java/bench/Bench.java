import io.orlop.Engine;
import io.orlop.GenerateParams;
import io.orlop.Request;
import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemoryLayout;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.SegmentAllocator;
import java.lang.foreign.StructLayout;
import java.lang.foreign.ValueLayout;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicLong;

/** What the binding costs: Bench TINY_MODEL_DIR REQUESTS TOKENS POLLS. Prints one line of JSON. */
final class Bench {
  private Bench() {}

  public static void main(String[] a) throws Throwable {
    int requests = Integer.parseInt(a[1]);
    int tokens = Integer.parseInt(a[2]);
    int polls = Integer.parseInt(a[3]);
    Map<String, ?> options = Map.of("threads", 2, "max_context", 512, "kv_bytes", 16_000_000);
    double poll;
    // The request that is polled is the last of a long row, so that it has no output.
    try (Engine engine =
        Engine.create(
            Path.of(a[0]),
            Map.of("threads", 1, "max_context", 512, "kv_bytes", 16_000_000, "max_running_seqs", 1))) {
      List<Request> row = new ArrayList<>();
      for (int i = 0; i < 2000; i++) row.add(engine.generate(params(i, 500)));
      poll = pollNanos(row.getLast(), polls);
      if (row.getLast().status().scheduledNanos() != 0)
        throw new IllegalStateException("the request that was polled ran: fewer polls, please");
      row.forEach(Request::close);
    }
    try (Engine engine = Engine.create(Path.of(a[0]), options)) {
      for (int i = 0; i < 6; i++) batch(engine, requests, tokens); // until it is compiled
      double[] rates = new double[7];
      for (int i = 0; i < rates.length; i++) {
        long begin = System.nanoTime();
        batch(engine, requests, tokens);
        rates[i] = requests / ((System.nanoTime() - begin) / 1e9);
      }
      Arrays.sort(rates);
      System.out.printf(
          "{\"language\": \"java\", \"poll_ns\": %.1f, \"requests_per_s\": %.1f,"
              + " \"bytes_left_per_request\": %.1f}%n",
          poll, rates[3], left(engine, requests, tokens));
    }
  }

  private static GenerateParams params(int i, int tokens) {
    return GenerateParams.tokens(3 + i % 100, 5, 7, 9).maxTokens(tokens).ignoreEos(true).seed(i).build();
  }

  /** The median of rounds of 1,000, after as many that compile it. */
  private static double pollNanos(Request waiting, int polls) {
    double[] rounds = new double[Math.max(20, polls / 1000)];
    for (int pass = 0; pass < 2; pass++)
      for (int round = 0; round < rounds.length; round++) {
        long begin = System.nanoTime();
        for (int i = 0; i < 1000; i++)
          if (waiting.poll() != null) throw new IllegalStateException("it has output");
        rounds[round] = (System.nanoTime() - begin) / 1000.0;
      }
    Arrays.sort(rounds);
    return rounds[rounds.length / 2];
  }

  /** Up to 64 at a time. */
  private static void batch(Engine engine, int requests, int tokens) throws Exception {
    Semaphore room = new Semaphore(64);
    AtomicLong got = new AtomicLong();
    for (int i = 0; i < requests; i++) {
      room.acquire();
      engine
          .generateAsync(params(i, tokens))
          .whenComplete(
              (r, e) -> {
                if (r != null) got.addAndGet(r.tokens().length);
                room.release();
              });
    }
    room.acquire(64);
    if (got.get() != (long) requests * tokens) throw new IllegalStateException("tokens: " + got);
  }

  /**
   * Bytes on the Java heap after a collection and bytes that malloc has given out, per request. The
   * JVM allocates for itself too, when it likes: the least growth of several rounds is taken.
   */
  private static double left(Engine engine, int requests, int tokens) throws Throwable {
    double least = Double.MAX_VALUE;
    batch(engine, requests, tokens);
    long before = live();
    for (int i = 0; i < 5; i++) {
      batch(engine, requests, tokens);
      long now = live();
      least = Math.min(least, (now - before) / (double) requests);
      before = now;
    }
    return Math.max(0, least);
  }

  private static long live() throws Throwable {
    for (int i = 0; i < 3; i++) {
      System.gc();
      Thread.sleep(30);
    }
    Runtime r = Runtime.getRuntime();
    return r.totalMemory() - r.freeMemory() + allocated();
  }

  /** mallinfo2().uordblks of glibc: ten size_t, the eighth. */
  @SuppressWarnings("restricted")
  private static long allocated() throws Throwable {
    Linker linker = Linker.nativeLinker();
    var found = linker.defaultLookup().find("mallinfo2");
    if (found.isEmpty()) return 0;
    StructLayout info = MemoryLayout.structLayout(MemoryLayout.sequenceLayout(10, ValueLayout.JAVA_LONG));
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment m =
          (MemorySegment)
              linker
                  .downcallHandle(found.get(), FunctionDescriptor.of(info))
                  .invokeExact((SegmentAllocator) arena);
      return m.getAtIndex(ValueLayout.JAVA_LONG, 7);
    }
  }
}
