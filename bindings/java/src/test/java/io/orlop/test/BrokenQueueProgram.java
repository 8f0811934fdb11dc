package io.orlop.test;

import static io.orlop.test.Check.contains;
import static io.orlop.test.Check.isTrue;
import static io.orlop.test.Check.throwing;

import io.orlop.Engine;
import io.orlop.GenerateParams;
import io.orlop.InternalException;
import io.orlop.Output;
import io.orlop.Request;
import io.orlop.Result;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Flow;
import java.util.concurrent.TimeUnit;

/** With broken_queue.c: whoever waits is told that nobody will tell it of output any more. */
final class BrokenQueueProgram {
  private BrokenQueueProgram() {}

  public static void main(String[] arguments) throws Exception {
    try (Engine engine =
        Engine.create(
            Check.TINY,
            Map.of("max_context", 512, "kv_bytes", 8_000_000, "threads", 1, "max_running_seqs", 1))) {
      GenerateParams endless =
          GenerateParams.tokens(5, 6, 7).maxTokens(500).ignoreEos(true).build();
      // One after the other: those at the end have nothing yet when the queue breaks.
      List<Request> requests = new ArrayList<>();
      for (int i = 0; i < 40; i++) requests.add(engine.generate(endless));

      CompletableFuture<Result> future = requests.removeLast().resultAsync();
      CompletableFuture<Throwable> told = new CompletableFuture<>();
      requests
          .removeLast()
          .subscribe(
              new Flow.Subscriber<Output>() {
                @Override
                public void onSubscribe(Flow.Subscription s) {} // asks for nothing

                @Override
                public void onNext(Output o) {}

                @Override
                public void onError(Throwable t) {
                  told.complete(t);
                }

                @Override
                public void onComplete() {}
              });
      Request waited = requests.removeLast();
      contains(throwing(InternalException.class, waited::text).getMessage(), "the queue is broken");
      var e = throwing(ExecutionException.class, () -> future.get(10, TimeUnit.SECONDS));
      isTrue(e.getCause() instanceof InternalException, "" + e.getCause());
      isTrue(told.get(10, TimeUnit.SECONDS) instanceof InternalException, "" + told.get());
      throwing(InternalException.class, () -> engine.generate(endless));
      isTrue(engine.queueDescriptor() > 2, "the queue is there until the engine is closed");
      waited.close();
      for (Request r : requests) r.close();
    }
    System.out.println("all were told");
  }
}
