package io.orlop.test;

import static io.orlop.test.Check.isTrue;
import static io.orlop.test.Check.same;
import static io.orlop.test.Check.throwing;

import io.orlop.BusyException;
import io.orlop.ClosedException;
import io.orlop.Engine;
import io.orlop.GenerateParams;
import io.orlop.Request;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;

/** Virtual threads, closing beside reading, interrupts. */
final class ThreadsTest {
  private ThreadsTest() {}

  private static GenerateParams endless(int n) {
    return GenerateParams.tokens(5, 6, 7).maxTokens(n).ignoreEos(true).seed(1).build();
  }

  /** An engine whose one sequence at a time leaves all other requests waiting. */
  private static Engine narrow() {
    return Engine.create(
        Check.TINY,
        Map.of("max_context", 512, "kv_bytes", 8_000_000, "threads", 1, "max_running_seqs", 1));
  }

  /** The process has one carrier: if a waiting thread held it, no other would go on. */
  public static void hundredVirtualThreadsOnOneCarrier() throws Exception {
    same(System.getProperty("jdk.virtualThreadScheduler.maxPoolSize"), "1");
    AtomicInteger arrived = new AtomicInteger();
    CountDownLatch all = new CountDownLatch(100);
    try (Engine engine = narrow();
        Request first = engine.generate(endless(500));
        ExecutorService threads = Executors.newVirtualThreadPerTaskExecutor()) {
      List<Future<Integer>> answers = new ArrayList<>();
      for (int i = 0; i < 100; i++)
        answers.add(
            threads.submit(
                () -> {
                  try (Request r = engine.generate(endless(4))) {
                    arrived.incrementAndGet();
                    all.countDown();
                    return r.result().tokens().length;
                  }
                }));
      // All of them wait behind the first request, each inside its own result().
      isTrue(all.await(10, TimeUnit.SECONDS), "one waits on the carrier: " + arrived);
      Thread more = Thread.ofVirtual().start(arrived::incrementAndGet);
      isTrue(more.join(Duration.ofSeconds(10)), "the carrier is free");
      same(arrived.get(), 101);
      first.cancel();
      for (Future<Integer> a : answers) same(a.get(20, TimeUnit.SECONDS), 4);
    }
  }

  public static void blockingCallsLeaveTheCarrier() throws Exception {
    try (ExecutorService threads = Executors.newVirtualThreadPerTaskExecutor()) {
      Future<Integer> length =
          threads.submit(
              () -> {
                try (Engine engine = Check.tiny()) {
                  return engine.saveState(io.orlop.StateParams.tokens(new int[40])).length;
                }
              });
      isTrue(length.get(20, TimeUnit.SECONDS) > 0, "a state");
      Future<?> wrong = threads.submit(() -> Engine.create("{\"model\": \"/no/such\"}"));
      var e = throwing(java.util.concurrent.ExecutionException.class, wrong::get);
      isTrue(e.getCause() instanceof io.orlop.NotFoundException, "" + e.getCause());
    }
  }

  public static void closeWhileAnotherReads() throws Exception {
    try (Engine engine = narrow()) {
      for (int round = 0; round < 50; round++) {
        Request running = engine.generate(endless(400));
        Request waiting = engine.generate(endless(400));
        AtomicReference<Throwable> seen = new AtomicReference<>();
        CountDownLatch started = new CountDownLatch(1);
        Thread reader =
            Thread.ofPlatform()
                .start(
                    () -> {
                      started.countDown();
                      try {
                        while (waiting.get() != null) {}
                      } catch (Throwable t) {
                        seen.set(t);
                      }
                    });
        started.await();
        if (round % 2 == 0) Thread.sleep(1);
        waiting.close();
        running.close();
        reader.join(10_000);
        isTrue(!reader.isAlive(), "the reader came back");
        isTrue(seen.get() instanceof ClosedException, "" + seen.get());
      }
    }
  }

  public static void overlappingReadersAreRefused() throws Exception {
    try (Engine engine = narrow();
        Request running = engine.generate(endless(500));
        Request waiting = engine.generate(endless(500))) {
      Thread reader =
          Thread.ofVirtual()
              .start(
                  () -> {
                    try {
                      waiting.get(Duration.ofSeconds(20));
                    } catch (InterruptedException e) {
                      Thread.currentThread().interrupt();
                    }
                  });
      Check.eventually(() -> reader.getState() == Thread.State.TIMED_WAITING, "it waits");
      throwing(BusyException.class, waiting::poll);
      throwing(BusyException.class, waiting::resultAsync);
      reader.interrupt();
      isTrue(reader.join(Duration.ofSeconds(10)), "an interrupt ends the wait");
      running.cancel();
      same(waiting.get().tokens().length > 0, true);
    }
  }

  /** Its poller sleeps until there is a request, and again afterwards. */
  public static void anIdleEngineWakesNobody() throws Exception {
    var threads = java.lang.management.ManagementFactory.getThreadMXBean();
    Check.eventually(
        () -> {
          System.gc(); // of what tests before left to be freed with its objects
          return pollers().isEmpty();
        },
        "those of engines that are gone end");
    try (Engine engine = Check.tiny()) {
      for (int round = 0; round < 2; round++) {
        Thread poller = pollers().getFirst();
        Check.eventually(() -> poller.getState() == Thread.State.WAITING, "it sleeps");
        long waits = threads.getThreadInfo(poller.threadId()).getWaitedCount();
        Thread.sleep(700);
        same(poller.getState(), Thread.State.WAITING);
        same(threads.getThreadInfo(poller.threadId()).getWaitedCount(), waits);
        try (Request r = engine.generate(endless(4))) {
          same(r.result().tokens().length, 4);
        }
      }
    }
    Check.eventually(() -> pollers().isEmpty(), "it ends with the engine");
  }

  private static List<Thread> pollers() {
    return Thread.getAllStackTraces().keySet().stream()
        .filter(t -> t.getName().equals("orlop-poller"))
        .toList();
  }

  /** Requests that nobody closes are freed with their objects. */
  public static void forgottenRequestsAreFreed() throws Exception {
    try (Engine engine = Check.tiny()) {
      for (int i = 0; i < 20; i++) engine.generate(endless(500));
      Check.eventually(
          () -> {
            System.gc();
            return engine.stats().pagesUsed() == 0;
          },
          "pages are back");
    }
  }
}
