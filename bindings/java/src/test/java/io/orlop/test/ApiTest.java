package io.orlop.test;

import static io.orlop.test.Check.contains;
import static io.orlop.test.Check.isTrue;
import static io.orlop.test.Check.same;
import static io.orlop.test.Check.throwing;

import io.orlop.BusyException;
import io.orlop.CancelledException;
import io.orlop.ChatEvent;
import io.orlop.ChatOutput;
import io.orlop.ClosedException;
import io.orlop.Embedding;
import io.orlop.Engine;
import io.orlop.EngineLoading;
import io.orlop.EngineStats;
import io.orlop.FinishReason;
import io.orlop.GenerateParams;
import io.orlop.Guide;
import io.orlop.InvalidArgumentException;
import io.orlop.Json;
import io.orlop.Orlop;
import io.orlop.Output;
import io.orlop.Progress;
import io.orlop.Request;
import io.orlop.RequestState;
import io.orlop.RequestStatus;
import io.orlop.Result;
import io.orlop.StateInfo;
import io.orlop.StateParams;
import io.orlop.UnsupportedException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Flow;
import java.util.concurrent.TimeUnit;

/** The rest of the API, on the tiny checkpoint. */
final class ApiTest {
  private ApiTest() {}

  private static GenerateParams.Builder prompt() {
    return GenerateParams.tokens(5, 6, 7, 8).maxTokens(10).seed(3).ignoreEos(true);
  }

  public static void theLibrary() {
    isTrue(Orlop.version().matches("\\d+\\.\\d+\\.\\d+.*"), Orlop.version());
    same(Orlop.abiVersion() >>> 16, 1);
    same(Orlop.feature("no such feature"), 0L);
    isTrue(Json.parse(Orlop.inspect(Check.TINY)) instanceof Map<?, ?> m && !m.isEmpty(), "inspect");
  }

  public static void infoAndStats() {
    try (Engine engine = Check.tiny()) {
      isTrue(Json.parse(engine.info()) instanceof Map<?, ?> m && !m.isEmpty(), engine.info());
      try (Request r = engine.generate(prompt().build())) {
        r.result();
      }
      EngineStats s = engine.stats();
      same(s.generatedTokens(), 10L);
      same(s.promptTokens(), 4L);
      same(s.requestsFinished(), 1L);
      isTrue(s.pagesTotal() > 0 && s.steps() >= 10 && s.stepNanos() > 0, s.toString());
      isTrue(engine.queueDescriptor() > 2, "a descriptor");
    }
  }

  public static void loading() throws Exception {
    ConcurrentLinkedQueue<Progress> seen = new ConcurrentLinkedQueue<>();
    String config = Engine.config(Check.TINY, Map.of("threads", 1));
    try (EngineLoading loading = Engine.createAsync(config, seen::add);
        Engine engine = loading.future().get(20, TimeUnit.SECONDS)) {
      isTrue(loading.progress().done() && loading.progress().bytesDone() > 0, "" + loading.progress());
      isTrue(!seen.isEmpty() && !engine.info().isEmpty(), "told of it");
    }
    throwing(InvalidArgumentException.class, () -> Engine.createAsync("{\"modle\": 1}", null));
    EngineLoading bad = Engine.createAsync("{\"model\": \"/no/such/file\"}", null);
    var e = throwing(ExecutionException.class, () -> bad.future().get());
    contains(e.getCause().getMessage(), "/no/such/file");
    Engine.createAsync(config, null).close();
  }

  public static void statusOfARequest() {
    try (Engine engine = Check.tiny();
        Request r = engine.generate(prompt().build())) {
      r.result();
      RequestStatus s = r.status();
      same(s.state(), RequestState.DONE);
      same(s.finishReason(), FinishReason.LENGTH);
      same(s.promptTokens() + s.generatedTokens(), 14L);
      same(s.seed(), 3L);
      isTrue(s.queuedNanos() <= s.firstTokenNanos() && s.firstTokenNanos() <= s.lastTokenNanos(), "" + s);
      isTrue(r.isDone() && r.poll() == null, "nothing more");
    }
  }

  public static void samplesAndLogprobs() {
    try (Engine engine = Check.tiny()) {
      GenerateParams p = prompt().n(3).logprobs(4).promptLogprobs(2).build();
      try (Request r = engine.generate(p)) {
        Result all = r.result();
        same(all.samples().size(), 3);
        for (int i = 0; i < 3; i++) {
          var sample = all.samples().get(i);
          same(sample.tokens().length, 10);
          same(sample.logprobs().length, 10);
          same(sample.topLogprobs().rows(), 10);
          same(sample.topLogprobs().columns(), 4);
          for (int k = 0; k < 10; k++) {
            var top = sample.topLogprobs();
            isTrue(top.logprob(k, 0) >= top.logprob(k, 3), "best first");
            isTrue(sample.logprobs()[k] <= top.logprob(k, 0), "no better than the best");
          }
          try (Request one = engine.generate(p.toBuilder().n(1).seed(3 + i).build())) {
            same(one.result().tokens(), sample.tokens());
          }
        }
        same(all.promptLogprobs().length, 4);
        same(all.promptTopLogprobs().columns(), 2);
        throwing(IndexOutOfBoundsException.class, () -> all.promptTopLogprobs().token(0, 2));
      }
      try (Request r = engine.generate(prompt().logprobs(GenerateParams.ALL).maxTokens(2).build())) {
        var top = r.result().samples().getFirst().topLogprobs();
        double sum = 0;
        for (int i = 0; i < top.columns(); i++) {
          same(top.token(1, i), i);
          sum += Math.exp(top.logprob(1, i));
        }
        isTrue(Math.abs(sum - 1) < 1e-3, "a distribution: " + sum);
      }
    }
  }

  public static void choiceOfTokens() {
    try (Engine engine = Check.tiny()) {
      Map<Integer, Float> only = Map.of(42, 1000f);
      try (Request r = engine.generate(prompt().logitBias(only).temperature(0).build())) {
        for (int t : r.result().tokens()) same(t, 42);
      }
      try (Request r = engine.generate(prompt().logitBias(only).stopTokens(42).build())) {
        var sample = r.result().samples().getFirst();
        same(sample.finishReason(), FinishReason.STOP);
        same(sample.stopToken(), 42);
      }
      GenerateParams every =
          prompt().temperature(0.7).topK(20).topP(0.9).minP(0.01).repetitionPenalty(1.1).presencePenalty(0.1)
              .frequencyPenalty(0.1).minTokens(2).cacheSalt("mine").priority(3).build();
      try (Request r = engine.generate(every)) {
        same(r.result().tokens().length, 10);
      }
      var e = throwing(InvalidArgumentException.class, () -> engine.generate(prompt().topP(2).build()));
      contains(e.getMessage(), "top_p");
      throwing(InvalidArgumentException.class, () -> prompt().maxTokens(-1));
      throwing(InvalidArgumentException.class, () -> engine.generate(GenerateParams.builder().build()));
    }
  }

  public static void embedding() {
    try (Engine engine = Check.tiny()) {
      float[] mean = embedding(engine, Embedding.MEAN);
      float[] last = embedding(engine, Embedding.LAST);
      double length = 0;
      for (float x : mean) length += x * x;
      isTrue(Math.abs(length - 1) < 1e-4, "of length 1: " + length);
      isTrue(!java.util.Arrays.equals(mean, last), "two ways of pooling");
    }
  }

  private static float[] embedding(Engine engine, Embedding how) {
    try (Request r = engine.generate(GenerateParams.tokens(5, 6, 7).embedding(how).build())) {
      return r.result().embedding();
    }
  }

  public static void guideCheck() {
    same(Guide.regex("[0-9]+ ships?").check("12 ship"), new Guide.Check(7, true));
    same(Guide.regex("[0-9]+ ships?").check("12 sheep").acceptedBytes(), 5L);
    same(Guide.choice("yes", "nö").check("nö"), new Guide.Check(3, true));
    same(Guide.jsonObject().check("{\"a\": [1"), new Guide.Check(8, false));
    same(Guide.grammar("root ::= \"a\"+").check("aaa").complete(), true);
    same(Guide.jsonSchema("{\"type\": \"integer\"}").check("17").complete(), true);
    throwing(InvalidArgumentException.class, () -> Guide.regex("(").check(""));
  }

  public static void states() throws Exception {
    int[] prefix = new int[48];
    java.util.Arrays.fill(prefix, 9);
    byte[] key = "a secret of the host's own".getBytes();
    Path file = Files.createTempFile("orlop-java", ".state");
    byte[] state;
    try {
      try (Engine engine = Check.tiny()) {
        state = engine.saveState(StateParams.tokens(prefix));
        engine.saveState(StateParams.tokens(prefix).key(key), file);
      }
      try (Engine engine = Check.tiny()) {
        same(engine.loadState(state, StateParams.none().cacheSalt("mine")), new StateInfo(false, 48, 3, 3));
        try (Request r = engine.generate(GenerateParams.tokens(prefix).maxTokens(1).cacheSalt("mine").build())) {
          isTrue(r.result().status().cachedTokens() > 0, "it was spared");
        }
        same(engine.loadState(file, StateParams.none().key(key)).shared(), true);
        throwing(InvalidArgumentException.class, () -> engine.loadState(state, StateParams.none()));
        throwing(InvalidArgumentException.class, () -> engine.loadState(state, StateParams.none().key(key)));
      }
    } finally {
      Files.delete(file);
    }
    byte[] kept = state;
    try (Engine other = Engine.create(Check.DATA.resolve("tiny/qwen2"), Map.of("threads", 1))) {
      throwing(UnsupportedException.class, () -> other.loadState(kept, StateParams.none().cacheSalt("x")));
    }
  }

  public static void futures() throws Exception {
    try (Engine engine = Check.tiny()) {
      int[] wanted;
      try (Request r = engine.generate(prompt().build())) {
        wanted = r.result().tokens();
      }
      try (Request r = engine.generate(prompt().build())) {
        CompletableFuture<Result> f = r.resultAsync();
        throwing(BusyException.class, r::poll);
        same(f.get(10, TimeUnit.SECONDS).tokens(), wanted);
        same(f.get().status().state(), RequestState.DONE);
      }
      GenerateParams endless = prompt().maxTokens(500).build();
      try (Request r = engine.generate(endless)) {
        CompletableFuture<String> f = r.textAsync();
        f.cancel(true);
        Check.eventually(() -> r.status().state() == RequestState.CANCELLED, "it is cancelled");
      }
      try (Request r = engine.generate(endless)) {
        CompletableFuture<Result> f = r.resultAsync();
        r.cancel();
        var e = throwing(ExecutionException.class, () -> f.get(10, TimeUnit.SECONDS));
        isTrue(e.getCause() instanceof CancelledException, "" + e.getCause());
      }
      Request closed = engine.generate(endless);
      CompletableFuture<Result> f = closed.resultAsync();
      closed.close();
      throwing(ExecutionException.class, () -> f.get(10, TimeUnit.SECONDS));
    }
  }

  /** Takes outputs two at a time, and stops after some. */
  private static class Reader implements Flow.Subscriber<Output> {
    final List<Output> got = new ArrayList<>();
    final CountDownLatch end = new CountDownLatch(1);
    final int limit;
    Flow.Subscription subscription;
    volatile Throwable error;
    volatile boolean completed;

    Reader(int limit) {
      this.limit = limit;
    }

    @Override
    public void onSubscribe(Flow.Subscription s) {
      subscription = s;
      s.request(1);
    }

    @Override
    public void onNext(Output o) {
      got.add(o);
      if (got.size() == limit) {
        subscription.cancel();
        end.countDown();
      } else {
        subscription.request(1);
      }
    }

    @Override
    public void onError(Throwable t) {
      error = t;
      end.countDown();
    }

    @Override
    public void onComplete() {
      completed = true;
      end.countDown();
    }

    void await() throws Exception {
      isTrue(end.await(10, TimeUnit.SECONDS), "the subscriber heard the end");
    }
  }

  public static void publisher() throws Exception {
    try (Engine engine = Check.tiny()) {
      int[] wanted;
      try (Request r = engine.generate(prompt().build())) {
        wanted = r.result().tokens();
      }
      try (Request r = engine.generate(prompt().build())) {
        Reader reader = new Reader(-1);
        r.subscribe(reader);
        reader.await();
        isTrue(reader.completed, "completed: " + reader.error);
        same(reader.got.stream().flatMapToInt(o -> java.util.Arrays.stream(o.tokens())).toArray(), wanted);
        Reader second = new Reader(-1);
        r.subscribe(second);
        second.await();
        isTrue(second.error instanceof BusyException, "" + second.error);
      }
      try (Request r = engine.generate(prompt().maxTokens(500).build())) {
        Reader reader = new Reader(2);
        r.subscribe(reader);
        reader.await();
        Check.eventually(() -> r.status().state() == RequestState.CANCELLED, "it is cancelled");
        same(reader.got.size(), 2);
        isTrue(!reader.completed && reader.error == null, "nothing after a cancel");
      }
      try (Request r = engine.generate(prompt().build())) {
        Reader reader =
            new Reader(-1) {
              @Override
              public void onSubscribe(Flow.Subscription s) {
                s.request(0);
              }
            };
        r.subscribe(reader);
        reader.await();
        isTrue(reader.error instanceof IllegalArgumentException, "" + reader.error);
      }
      // What a subscriber throws after its last word brings no other word.
      try (Request r = engine.generate(prompt().build())) {
        Reader reader =
            new Reader(-1) {
              @Override
              public void onComplete() {
                super.onComplete();
                throw new IllegalStateException("its own");
              }
            };
        r.subscribe(reader);
        reader.await();
        Thread.sleep(50);
        isTrue(reader.completed && reader.error == null, "" + reader.error);
      }
      // A refused call leaves the request as it was.
      try (Request r = engine.generate(prompt().build())) {
        throwing(NullPointerException.class, () -> r.subscribe(new Reader(-1), null));
        same(r.result().tokens(), wanted);
      }
    }
  }

  /** A subscriber that asks for nothing hears of the close all the same. */
  public static void closedWithoutDemand() throws Exception {
    try (Engine engine = Check.tiny()) {
      Request r = engine.generate(prompt().maxTokens(400).build());
      Reader reader =
          new Reader(-1) {
            @Override
            public void onSubscribe(Flow.Subscription s) {}
          };
      r.subscribe(reader);
      Check.eventually(() -> r.status().generatedTokens() > 5, "it has output");
      isTrue(reader.end.getCount() == 1, "nothing is said without demand");
      r.close();
      reader.await();
      isTrue(reader.error instanceof ClosedException, "" + reader.error);
      isTrue(reader.got.isEmpty() && !reader.completed, "nothing else");
    }
  }

  /** Half of a surrogate pair has no UTF-8; it does not become a question mark. */
  public static void loneSurrogates() {
    same(Guide.choice("x").check("\ud83d\ude00").acceptedBytes(), 0L);
    try (Engine engine = Check.tiny();
        ChatOutput out = ChatOutput.of("{\"format\": \"none\", \"reasoning\": false}")) {
      same(out.push("a \ud83d\ude00", false), List.of(new ChatEvent.Content("a \ud83d\ude00")));
      Map<String, Check.Work> calls =
          Map.of(
              "text: ", () -> engine.generate(GenerateParams.text("ab\ud83d").build()),
              "messages: ", () -> engine.chatRender("[\"\ud83d\"]"),
              "stop: ", () -> engine.generate(prompt().stop("x", "ab\ude00c").build()),
              "cache_salt: ", () -> engine.generate(prompt().cacheSalt("\ude00\ud83d").build()),
              "config: ", () -> Engine.create("{\"model\": \"\ud800\"}"),
              "guide: ", () -> Guide.regex("\udfff").check(""),
              "text: a lone surrogate \\uD83D at character 1 has no UTF-8", () -> out.push("a\ud83d", false));
      for (var call : calls.entrySet()) {
        var e = throwing(InvalidArgumentException.class, call.getValue());
        contains(e.getMessage(), call.getKey());
        contains(e.getMessage(), "a lone surrogate");
      }
      same(engine.stats().requestsFinished(), 0L);
    }
  }

  /** An interrupt ends the wait, not the request, and loses nothing. */
  public static void interruptedResult() throws Exception {
    try (Engine engine = Check.tiny();
        Request r = engine.generate(prompt().maxTokens(400).build());
        Request alone = engine.generate(prompt().maxTokens(400).build())) {
      Check.eventually(() -> r.status().generatedTokens() > 5, "it runs");
      Thread.currentThread().interrupt();
      throwing(CancelledException.class, r::result);
      isTrue(Thread.interrupted(), "the interrupt is kept");
      same(r.result().tokens(), alone.result().tokens());
    }
  }

  public static void bounds() {
    throwing(InvalidArgumentException.class, () -> prompt().n(-1));
    try (Engine engine = Check.tiny();
        Request r = engine.generate(prompt().deadline(java.time.Duration.ofSeconds(Long.MAX_VALUE)).build())) {
      same(r.result().finishReason(), FinishReason.LENGTH);
    }
    same(Json.parse("9223372036854775807"), Long.MAX_VALUE);
    same(Json.parse("9223372036854775808"), 9223372036854775808.0);
  }

  public static void json() {
    String text = "{\"a\":[1,-2.5,true,null,\"x\\\"\\\\\\u000a\u00e9\"],\"b\":{}}";
    same(Json.write(Json.parse(text)), text);
    for (String bad : List.of("", "{", "[1,]", "{\"a\"}", "\"\\u12\"", "nul", "1 2", "01", "1e999", "-1e999", "\"\\u+123\"", "\"\n\""))
      throwing(InvalidArgumentException.class, () -> Json.parse(bad));
    throwing(InvalidArgumentException.class, () -> Json.parse("[".repeat(300)));
  }
}
