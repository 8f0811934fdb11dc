package io.orlop;

import java.util.concurrent.Executor;
import java.util.concurrent.Flow;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;

/** Delivers outputs to a subscriber as it requests them; what it does not request stays inside. */
final class OutputSubscription implements Flow.Subscription, Runnable {
  private final Request request;
  private final Flow.Subscriber<? super Output> subscriber;
  private final Executor executor;
  private final AtomicLong demand = new AtomicLong();
  private final AtomicInteger calls = new AtomicInteger();
  private volatile boolean cancelled;
  private volatile IllegalArgumentException badDemand;
  private Throwable refusal;
  private boolean begun; // these two: of whoever delivers
  private boolean ended;

  OutputSubscription(Request request, Flow.Subscriber<? super Output> subscriber, Executor executor) {
    this.request = request;
    this.subscriber = subscriber;
    this.executor = executor;
  }

  void begin() {
    run();
  }

  void refuse(Throwable why) {
    refusal = why;
    run();
  }

  @Override
  public void request(long n) {
    if (n <= 0) badDemand = new IllegalArgumentException("request: must be above 0, got " + n);
    else demand.accumulateAndGet(n, (a, b) -> a + b < 0 ? Long.MAX_VALUE : a + b);
    run();
  }

  @Override
  public void cancel() {
    if (cancelled) return;
    cancelled = true;
    request.dropListener();
    if (refusal == null) request.cancelQuietly();
  }

  /** There is news, or demand: has the executor look, unless it is about to. */
  @Override
  public void run() {
    if (calls.getAndIncrement() != 0) return;
    try {
      executor.execute(this::deliver);
    } catch (RejectedExecutionException e) {
      refusal = e;
      request.cancelQuietly();
      deliver();
    }
  }

  private void deliver() {
    int seen = 1;
    do {
      try {
        round();
      } catch (RuntimeException | Error e) {
        boolean told = ended; // after the last word there is no other
        end();
        request.cancelQuietly();
        if (told) throw e;
        subscriber.onError(e);
      } finally {
        seen = calls.addAndGet(-seen);
      }
    } while (seen != 0);
  }

  private void round() {
    if (!begun) {
      begun = true;
      subscriber.onSubscribe(this);
    }
    if (ended || cancelled) return;
    if (refusal != null) {
      fail(refusal);
      return;
    }
    while (demand.get() > 0 && !cancelled && badDemand == null && !request.isDone()) {
      Output o = request.takeNow();
      if (o == null) break;
      if (o.error() != null) {
        fail(o.error());
        return;
      }
      if (demand.get() != Long.MAX_VALUE) demand.decrementAndGet();
      subscriber.onNext(o);
    }
    if (cancelled) return;
    if (badDemand != null) {
      request.cancelQuietly();
      fail(badDemand);
    } else if (request.isDone()) {
      end();
      subscriber.onComplete();
    } else {
      // Without demand too: nothing will come any more.
      RuntimeException broken = request.broken();
      if (broken != null) fail(broken);
    }
  }

  private void fail(Throwable t) {
    end();
    subscriber.onError(t);
  }

  private void end() {
    ended = true;
    if (refusal == null) request.dropListener();
  }
}
