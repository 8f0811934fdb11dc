package io.orlop;

import java.lang.foreign.MemorySegment;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.lang.ref.Cleaner;
import java.time.Duration;
import java.util.Iterator;
import java.util.NoSuchElementException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executor;
import java.util.concurrent.Flow;
import java.util.concurrent.ForkJoinPool;
import java.util.concurrent.locks.LockSupport;

/**
 * A request that the engine works on. Its outputs are taken in one of these ways:
 *
 * <ul>
 *   <li>as an {@link Iterable}, in a loop;
 *   <li>with {@link #get()}, {@link #get(Duration)} and {@link #poll()};
 *   <li>whole: {@link #result()}, {@link #text()}, or the futures {@link #resultAsync()} and {@link
 *       #textAsync()};
 *   <li>as a {@link Flow.Publisher} with back-pressure.
 * </ul>
 *
 * <p>A request has one consumer at a time; an overlapping one gets a {@link BusyException}. Cancel,
 * status and close may come from any thread. Waiting threads park in Java: virtual threads hold no
 * carrier. A request that is forgotten without a close is cancelled and freed some time later.
 */
public final class Request implements AutoCloseable, Iterable<Output>, Flow.Publisher<Output> {
  private static final VarHandle CONSUMER;

  static {
    try {
      CONSUMER = MethodHandles.lookup().findVarHandle(Request.class, "consumer", int.class);
    } catch (ReflectiveOperationException e) {
      throw new ExceptionInInitializerError(e);
    }
  }

  private static final int NOBODY = 0;
  private static final int A_CALL = 1;
  private static final int FOR_GOOD = 2; // a future or a subscriber

  private final RequestCore core;
  private final Cleaner.Cleanable cleanable;
  private final int samples;
  private volatile int consumer;
  private int ended; // samples that have had their last output; the consumer's
  private volatile boolean done;
  private Collector collected; // the consumer's

  Request(RequestCore core, int samples) {
    this.core = core;
    this.samples = samples;
    cleanable = Handle.CLEANER.register(this, core);
  }

  /**
   * Waits for new output.
   *
   * @return the output, or null when everything was taken
   * @throws InterruptedException if the thread is interrupted; the request goes on
   */
  public Output get() throws InterruptedException {
    return take(Long.MAX_VALUE);
  }

  /**
   * Waits for new output for some time.
   *
   * @param timeout how long at most; zero or less: not at all
   * @return the output, or null when nothing came or (see {@link #isDone()}) everything was taken
   * @throws InterruptedException if the thread is interrupted; the request goes on
   */
  public Output get(Duration timeout) throws InterruptedException {
    long nanos;
    try {
      nanos = timeout.toNanos();
    } catch (ArithmeticException e) {
      nanos = timeout.isNegative() ? 0 : Long.MAX_VALUE;
    }
    return nanos <= 0 ? poll() : take(nanos);
  }

  /**
   * Takes new output if there is some.
   *
   * @return the output, or null when there is none or (see {@link #isDone()}) everything was taken
   */
  public Output poll() {
    claim(A_CALL);
    try {
      return takeNow();
    } finally {
      CONSUMER.setRelease(this, NOBODY);
    }
  }

  private Output take(long nanos) throws InterruptedException {
    claim(A_CALL);
    Poller.Signal signal = core.signal;
    try {
      long start = System.nanoTime();
      for (; ; ) {
        signal.raised = false;
        Output o = takeNow();
        if (o != null || done) return o;
        if (signal.failure != null) throw signal.failure.again();
        signal.waiter = Thread.currentThread();
        while (!signal.raised) {
          if (Thread.interrupted()) throw new InterruptedException();
          if (nanos == Long.MAX_VALUE) {
            LockSupport.park(this);
          } else {
            long left = nanos - (System.nanoTime() - start);
            if (left <= 0) return null;
            LockSupport.parkNanos(this, left);
          }
        }
      }
    } finally {
      signal.waiter = null;
      CONSUMER.setRelease(this, NOBODY);
    }
  }

  private void claim(int how) {
    if (!CONSUMER.compareAndSet(this, NOBODY, how))
      throw new BusyException("the request has a consumer already; there is one at a time");
  }

  /** What is there, without waiting; null when nothing is, or, with done set, nothing will be. */
  Output takeNow() {
    MemorySegment address = core.enter();
    try {
      if (done) return null;
      int status = core.get(address);
      if (status == Status.TIMEOUT) return null;
      if (status == Status.OK) {
        Output o = OutputReader.read(core.output());
        if (o.isLast() && ++ended == samples) done = true;
        return o;
      }
      if (status == Status.END) {
        done = true;
        return null;
      }
      throw OrlopException.of(status, Call.message(core.error()));
    } finally {
      core.exit();
    }
  }

  /** Why nobody will be told of output any more, or null. */
  RuntimeException broken() {
    if (core.isClosed()) return new ClosedException("the request is closed");
    OrlopException failure = core.signal.failure;
    return failure == null ? null : failure.again();
  }

  /**
   * Whether every output, of every sample, was taken.
   *
   * @return true when no more will come
   */
  public boolean isDone() {
    return done;
  }

  /**
   * The outputs as they come. An error of the request is thrown when it is reached; a cancelled one
   * ends with an output that says so.
   *
   * @return an iterator; two of one request share its outputs
   */
  @Override
  public Iterator<Output> iterator() {
    return new Iterator<>() {
      private Output next;

      @Override
      public boolean hasNext() {
        if (next == null) {
          try {
            next = get();
          } catch (InterruptedException e) {
            throw Blocking.interrupted();
          }
          if (next != null && next.error() != null) throw next.error();
        }
        return next != null;
      }

      @Override
      public Output next() {
        if (!hasNext()) throw new NoSuchElementException("the request ended");
        Output o = next;
        next = null;
        return o;
      }
    };
  }

  /**
   * Waits for the end and joins everything that comes until then. A cancelled request delivers what
   * it had.
   *
   * @return the whole result
   */
  public Result result() {
    if (collected == null) collected = new Collector(samples);
    Collector all = collected; // what an interrupted call has taken is not lost
    for (Output o : this) all.add(o);
    collected = null;
    return all.result(status());
  }

  /**
   * Waits for the end.
   *
   * @return the text of the first sample
   */
  public String text() {
    return result().text();
  }

  /**
   * The whole result as a future. It fails with the request's error, with {@link CancelledException}
   * when it was cancelled, and with {@link ClosedException} when it is closed before. Cancelling the
   * future cancels the request. It is completed on the common pool.
   *
   * @return a future; the request has no other consumer from now on
   */
  public CompletableFuture<Result> resultAsync() {
    claim(FOR_GOOD);
    Completion completion = new Completion(this, samples);
    core.signal.listener = completion;
    completion.run();
    return completion.future;
  }

  /**
   * The text of the first sample as a future, see {@link #resultAsync()}.
   *
   * @return a future; the request has no other consumer from now on
   */
  public CompletableFuture<String> textAsync() {
    CompletableFuture<Result> whole = resultAsync();
    CompletableFuture<String> text = whole.thenApply(Result::text);
    text.whenComplete(
        (t, e) -> {
          if (text.isCancelled()) whole.cancel(true);
        });
    return text;
  }

  /**
   * Delivers the outputs to a subscriber, as many as it requests, on the common pool. A request has
   * one subscriber; a second one, or one beside another consumer, gets a {@link BusyException}.
   * Cancelling the subscription cancels the request. The request stays open until it is closed.
   *
   * @param subscriber who receives them
   */
  @Override
  public void subscribe(Flow.Subscriber<? super Output> subscriber) {
    subscribe(subscriber, ForkJoinPool.commonPool());
  }

  /**
   * As {@link #subscribe(Flow.Subscriber)}, with an executor to deliver on.
   *
   * @param subscriber who receives the outputs
   * @param executor runs its methods, never two at a time
   */
  public void subscribe(Flow.Subscriber<? super Output> subscriber, Executor executor) {
    java.util.Objects.requireNonNull(subscriber, "subscriber");
    java.util.Objects.requireNonNull(executor, "executor");
    OutputSubscription subscription = new OutputSubscription(this, subscriber, executor);
    if (!CONSUMER.compareAndSet(this, NOBODY, FOR_GOOD)) {
      subscription.refuse(new BusyException("the request has a consumer already; there is one at a time"));
      return;
    }
    core.signal.listener = subscription;
    subscription.begin();
  }

  /** The future or the subscriber wants nothing more. */
  void dropListener() {
    core.signal.listener = null;
  }

  /**
   * Ends the request within one step; its last output says so. A second time it does nothing.
   */
  public void cancel() {
    MemorySegment address = core.enter();
    try {
      Native.cancel(address);
    } finally {
      core.exit();
    }
  }

  /** Cancels without a complaint that it is closed. */
  void cancelQuietly() {
    try {
      cancel();
    } catch (ClosedException e) {
      // a closed request is cancelled already
    }
  }

  /**
   * Where the request stands. Never waits.
   *
   * @return its counts and times
   */
  public RequestStatus status() {
    MemorySegment address = core.enter();
    try (Call c = new Call()) {
      MemorySegment info = c.struct(Struct.REQUEST_INFO);
      c.check(Native.getStatus(address, info, c.error));
      return RequestStatus.read(info);
    } finally {
      core.exit();
    }
  }

  /**
   * Cancels the request if it is unfinished and frees it. A thread that waits for its output gets a
   * {@link ClosedException}. A second time it does nothing.
   */
  @Override
  public void close() {
    cleanable.clean();
  }
}
