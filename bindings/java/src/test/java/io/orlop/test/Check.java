package io.orlop.test;

import io.orlop.Engine;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.Comparator;
import java.util.Map;
import java.util.Objects;

/** A small runner: every public static method of a class without parameters is a test. */
final class Check {
  private Check() {}

  static final Path DATA = Path.of(System.getenv("ORLOP_TEST_DATA"));
  static final Path TINY = DATA.resolve("tiny/llama");
  static final Path MODEL = Path.of(System.getenv("ORLOP_TEST_MODEL"));

  /** A test throws this when what it needs is missing. */
  static final class Skipped extends RuntimeException {
    private static final long serialVersionUID = 1L;

    Skipped(String why) {
      super(why);
    }
  }

  interface Work {
    void run() throws Exception;
  }

  static void isTrue(boolean value, String what) {
    if (!value) throw new AssertionError(what);
  }

  static void same(Object got, Object wanted) {
    if (!Objects.deepEquals(got, wanted))
      throw new AssertionError("got " + shown(got) + ", wanted " + shown(wanted));
  }

  private static String shown(Object o) {
    return o instanceof int[] a ? Arrays.toString(a) : String.valueOf(o);
  }

  static void contains(String text, String part) {
    if (!text.contains(part)) throw new AssertionError("no \"" + part + "\" in: " + text);
  }

  static <T extends Throwable> T throwing(Class<T> type, Work work) {
    try {
      work.run();
    } catch (Throwable t) {
      if (type.isInstance(t)) return type.cast(t);
      throw new AssertionError("wanted " + type.getSimpleName() + ", got " + t, t);
    }
    throw new AssertionError("nothing was thrown; wanted " + type.getSimpleName());
  }

  static Engine tiny() {
    return Engine.create(TINY, Map.of("max_context", 512, "kv_bytes", 8_000_000, "threads", 1));
  }

  static Engine model(Map<String, ?> options) {
    if (!Files.exists(MODEL)) throw new Skipped("the demo model is absent: " + MODEL);
    return Engine.create(MODEL, options);
  }

  static void remove(Path folder) throws Exception {
    try (var files = Files.walk(folder)) {
      for (Path p : files.sorted(Comparator.reverseOrder()).toList()) Files.delete(p);
    }
  }

  /** Waits for what comes soon. */
  static void eventually(java.util.function.BooleanSupplier holds, String what) throws Exception {
    long end = System.nanoTime() + 10_000_000_000L;
    while (!holds.getAsBoolean()) {
      if (System.nanoTime() > end) throw new AssertionError("after 10 s still not: " + what);
      Thread.sleep(2);
    }
  }

  /** Runs the tests of some classes and ends the process. */
  static void runAll(Class<?>... classes) throws Exception {
    int passed = 0;
    int failed = 0;
    for (Class<?> c : classes) {
      Method[] tests = c.getDeclaredMethods();
      Arrays.sort(tests, Comparator.comparing(Method::getName));
      for (Method test : tests) {
        if (!Modifier.isPublic(test.getModifiers()) || test.getParameterCount() != 0) continue;
        String name = c.getSimpleName() + "." + test.getName();
        long begin = System.nanoTime();
        try {
          test.invoke(null);
          passed++;
        } catch (InvocationTargetException e) {
          if (e.getCause() instanceof Skipped s) {
            System.out.println("SKIP " + name + ": " + s.getMessage());
            continue;
          }
          failed++;
          System.out.println("FAIL " + name);
          e.getCause().printStackTrace(System.out);
        }
        long ms = (System.nanoTime() - begin) / 1_000_000;
        if (ms > 3000) System.out.println(name + ": " + ms + " ms");
      }
    }
    System.out.println(passed + " passed, " + failed + " failed");
    System.out.flush();
    System.exit(failed == 0 ? 0 : 1);
  }
}
