package io.orlop.test;

import static io.orlop.test.Check.contains;
import static io.orlop.test.Check.eventually;
import static io.orlop.test.Check.isTrue;
import static io.orlop.test.Check.same;
import static io.orlop.test.Check.throwing;

import io.orlop.BadFormatException;
import io.orlop.ClosedException;
import io.orlop.ContextOverflowException;
import io.orlop.DeadlineException;
import io.orlop.Engine;
import io.orlop.FinishReason;
import io.orlop.GenerateParams;
import io.orlop.InvalidArgumentException;
import io.orlop.IoException;
import io.orlop.Log;
import io.orlop.NotFoundException;
import io.orlop.OrlopException;
import io.orlop.Output;
import io.orlop.Request;
import io.orlop.Result;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.TimeUnit;

/** What every language shows: tests/behaviours/behaviours.txt. */
final class BehavioursTest {
  private BehavioursTest() {}

  private static GenerateParams params(int i, int maxTokens) {
    return GenerateParams.tokens(3 + i, 7, 1 + i % 9).maxTokens(maxTokens).seed(i).build();
  }

  private static GenerateParams endless(int maxTokens) {
    return GenerateParams.tokens(5, 6, 7).maxTokens(maxTokens).ignoreEos(true).seed(1).build();
  }

  private static int[] alone(Engine engine, GenerateParams params) {
    try (Request r = engine.generate(params)) {
      return r.result().tokens();
    }
  }

  /** golden_stream. */
  public static void goldenStream() throws Exception {
    Path folder = Check.DATA.resolve("../behaviours");
    String prompt = Files.readString(folder.resolve("golden_prompt.txt"));
    String golden = Files.readString(folder.resolve("golden_text.txt"));
    try (Engine engine = Check.model(Map.of("compute", "fp32", "max_context", 512, "threads", 2));
        Request r = engine.generate(GenerateParams.text(prompt).temperature(0).maxTokens(48).build())) {
      StringBuilder text = new StringBuilder();
      int pieces = 0;
      int tokens = 0;
      FinishReason reason = FinishReason.NONE;
      for (Output o : r) {
        text.append(o.text());
        tokens += o.tokens().length;
        pieces++;
        reason = o.finishReason();
      }
      isTrue(pieces > 4, "it streams: " + pieces + " pieces");
      same(text.toString(), golden);
      same(tokens, 48);
      same(reason, FinishReason.LENGTH);
    }
  }

  /** cancel. */
  public static void cancel() throws Exception {
    try (Engine engine = Check.tiny();
        Request r = engine.generate(endless(400))) {
      int tokens = r.get().tokens().length;
      r.cancel();
      r.cancel();
      FinishReason reason = FinishReason.NONE;
      for (Output o : r) {
        tokens += o.tokens().length;
        reason = o.finishReason();
      }
      r.cancel();
      same(reason, FinishReason.CANCELLED);
      isTrue(tokens < 400, "it ended early: " + tokens);
      eventually(() -> engine.stats().pagesUsed() == 0, "pages are back");
    }
  }

  /** timeout. */
  public static void timeout() throws Exception {
    try (Engine engine = Check.tiny()) {
      List<Request> before = new ArrayList<>();
      for (int i = 0; i < 32; i++) before.add(engine.generate(endless(200)));
      try (Request r = engine.generate(params(1, 8))) {
        same(r.get(Duration.ofNanos(1)), null);
        same(r.poll(), null);
        isTrue(!r.isDone(), "a timeout is no end");
        before.forEach(Request::close);
        same(r.result().tokens().length > 0, true);
      }
      try (Request r = engine.generate(endless(300).toBuilder().deadline(Duration.ofNanos(1000)).build())) {
        throwing(DeadlineException.class, r::result);
      }
    }
  }

  /** overflow_error_text. */
  public static void overflowErrorText() {
    try (Engine engine = Check.tiny()) {
      int[] prompt = new int[600];
      Arrays.fill(prompt, 5);
      GenerateParams p = GenerateParams.tokens(prompt).build();
      var e = throwing(ContextOverflowException.class, () -> engine.generate(p));
      contains(e.getMessage(), "600");
      contains(e.getMessage(), "512");
      same(e.status(), ContextOverflowException.CODE);
    }
  }

  /** unknown_key. */
  public static void unknownKey() {
    var e =
        throwing(InvalidArgumentException.class, () -> Engine.create(Check.TINY, Map.of("thread", 1)));
    contains(e.getMessage(), "threads");
  }

  /** drop_order. */
  public static void dropOrder() throws Exception {
    int[] wanted;
    try (Engine engine = Check.tiny()) {
      wanted = alone(engine, endless(100));
    }
    for (boolean engineFirst : new boolean[] {true, false}) {
      Engine engine = Check.tiny();
      Request r = engine.generate(endless(100));
      if (engineFirst) engine.close();
      same(r.result().tokens(), wanted);
      r.close();
      engine.close();
    }
    Engine engine = Check.tiny();
    Request unread = engine.generate(endless(400));
    Request other = engine.generate(endless(400));
    unread.close();
    engine.close();
    other.close();
  }

  /** sixty_four_at_once. */
  public static void sixtyFourAtOnce() throws Exception {
    try (Engine engine = Check.tiny()) {
      List<int[]> wanted = new ArrayList<>();
      for (int i = 0; i < 64; i++) wanted.add(alone(engine, params(i, 16)));
      List<CompletableFuture<Result>> futures = new ArrayList<>();
      for (int i = 0; i < 64; i++) futures.add(engine.generateAsync(params(i, 16)));
      for (int i = 0; i < 64; i++)
        same(futures.get(i).get(30, TimeUnit.SECONDS).tokens(), wanted.get(i));
    }
  }

  /** eight_threads. */
  public static void eightThreads() throws Exception {
    try (Engine engine = Check.tiny()) {
      List<int[]> wanted = new ArrayList<>();
      for (int i = 0; i < 8; i++) wanted.add(alone(engine, params(i, 24)));
      ConcurrentLinkedQueue<Throwable> failures = new ConcurrentLinkedQueue<>();
      List<Thread> threads = new ArrayList<>();
      for (int t = 0; t < 8; t++) {
        int which = t;
        threads.add(
            Thread.ofPlatform()
                .start(
                    () -> {
                      try {
                        for (int i = 0; i < 10; i++) {
                          int mine = (which + i) % 8;
                          same(alone(engine, params(mine, 24)), wanted.get(mine));
                          try (Request r = engine.generate(endless(300))) {
                            r.get();
                            r.cancel();
                            for (Output o : r) same(o.index(), 0);
                          }
                        }
                      } catch (Throwable e) {
                        failures.add(e);
                      }
                    }));
      }
      for (Thread t : threads) t.join();
      if (!failures.isEmpty()) throw new AssertionError(failures.peek());
      eventually(() -> engine.stats().pagesUsed() == 0, "pages are back");
    }
  }

  /** bad_file. */
  public static void badFile() throws Exception {
    Path folder = Files.createTempDirectory("orlop-java");
    try {
      refused(folder.resolve("absent.gguf"));
      refused(Files.createFile(folder.resolve("empty.gguf")));
      byte[] noise = new byte[4096];
      new Random(1).nextBytes(noise);
      refused(Files.write(folder.resolve("noise.gguf"), noise));
      Path cut = Files.createDirectory(folder.resolve("cut"));
      for (String name : List.of("config.json", "generation_config.json"))
        Files.copy(Check.TINY.resolve(name), cut.resolve(name));
      byte[] weights = Files.readAllBytes(Check.TINY.resolve("model.safetensors"));
      Files.write(cut.resolve("model.safetensors"), Arrays.copyOf(weights, weights.length / 2));
      refused(cut);
      try (Engine engine = Check.tiny()) {
        same(alone(engine, endless(5)).length, 5);
      }
    } finally {
      Check.remove(folder);
    }
  }

  private static void refused(Path path) {
    var e = throwing(OrlopException.class, () -> Engine.create(path));
    isTrue(
        e instanceof NotFoundException || e instanceof IoException || e instanceof BadFormatException,
        e.toString());
    contains(e.getMessage(), path.toString());
  }

  /** log_sink. */
  public static void logSink() throws Exception {
    ConcurrentLinkedQueue<String> lines = new ConcurrentLinkedQueue<>();
    Log.set(Log.Level.DEBUG, (level, text) -> lines.add(level + " " + text));
    Check.tiny().close();
    Log.off();
    int n = lines.size();
    isTrue(n > 0, "lines came");
    isTrue(lines.stream().noneMatch(l -> l.endsWith("\n")), "a line has no newline");
    Check.tiny().close();
    same(lines.size(), n);
    Log.set(
        Log.Level.DEBUG,
        (level, text) -> {
          lines.add(text);
          throw new IllegalStateException("a sink that fails");
        });
    try (Engine engine = Check.tiny()) {
      same(alone(engine, endless(5)).length, 5);
    } finally {
      Log.off();
    }
    isTrue(lines.size() > n, "the failing sink was called");
    List<Throwable> caught = new ArrayList<>();
    Log.set(
        Log.Level.DEBUG,
        (level, text) -> caught.add(throwing(IllegalStateException.class, Log::off)));
    try (Engine engine = Check.tiny()) {
      same(alone(engine, endless(5)).length, 5);
    } finally {
      Log.off();
    }
    isTrue(!caught.isEmpty(), "a sink that sets the log is refused");
  }

  /** release_twice. */
  public static void releaseTwice() throws Exception {
    Engine engine = Check.tiny();
    Request r = engine.generate(endless(5));
    r.close();
    r.close();
    engine.close();
    engine.close();
    throwing(ClosedException.class, r::poll);
    throwing(ClosedException.class, r::get);
    throwing(ClosedException.class, r::status);
    throwing(ClosedException.class, r::cancel);
    throwing(ClosedException.class, () -> engine.generate(endless(5)));
    throwing(ClosedException.class, engine::stats);
    throwing(ClosedException.class, engine::info);
  }

  /** exit_with_live_requests. */
  public static void exitWithLiveRequests() throws Exception {
    for (String how : List.of("return", "exit")) {
      ProcessBuilder b =
          new ProcessBuilder(
              Path.of(System.getProperty("java.home"), "bin/java").toString(),
              "--enable-native-access=ALL-UNNAMED",
              "-Dorlop.library=" + System.getProperty("orlop.library"),
              "-cp",
              System.getProperty("java.class.path"),
              "io.orlop.test.ExitProgram",
              how);
      Process p = b.start();
      isTrue(p.waitFor(20, TimeUnit.SECONDS), "it hangs: " + how);
      same(new String(p.getErrorStream().readAllBytes()), "");
      same(new String(p.getInputStream().readAllBytes()), "running\n");
      same(p.exitValue(), 0);
    }
  }
}
