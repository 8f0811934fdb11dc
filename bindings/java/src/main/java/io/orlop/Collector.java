package io.orlop;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;

/** Joins outputs to a result. */
final class Collector {
  private static final class Part {
    final StringBuilder text = new StringBuilder();
    int[] tokens = {};
    float[] logprobs;
    int[] topTokens = {};
    float[] topLogprobs = {};
    int rows;
    int columns;
    boolean hasTop;
    FinishReason finish = FinishReason.NONE;
    int stopToken = -1;
    int stopIndex = -1;

    void add(Output o) {
      text.append(o.text());
      tokens = joined(tokens, o.tokens());
      if (o.logprobs() != null) logprobs = logprobs == null ? o.logprobs() : joined(logprobs, o.logprobs());
      LogprobTable top = o.topLogprobs();
      if (top != null) {
        hasTop = true;
        columns = Math.max(columns, top.columns());
        rows += top.rows();
        topTokens = joined(topTokens, top.tokens());
        topLogprobs = joined(topLogprobs, top.logprobs());
      }
      finish = o.finishReason();
      stopToken = o.stopToken();
      stopIndex = o.stopIndex();
    }

    Sample sample() {
      LogprobTable top = hasTop ? new LogprobTable(rows, columns, topTokens, topLogprobs) : null;
      return new Sample(text.toString(), tokens, finish, logprobs, top, stopToken, stopIndex);
    }
  }

  private final Part[] parts;
  private float[] promptLogprobs;
  private LogprobTable promptTop;
  private float[] embedding;
  private OrlopException error;
  private boolean cancelled;

  Collector(int samples) {
    parts = new Part[samples];
    Arrays.setAll(parts, i -> new Part());
  }

  void add(Output o) {
    parts[o.index()].add(o);
    if (o.promptLogprobs() != null) promptLogprobs = o.promptLogprobs();
    if (o.promptTopLogprobs() != null) promptTop = o.promptTopLogprobs();
    if (o.embedding() != null) embedding = o.embedding();
    if (o.error() != null && error == null) error = o.error();
    if (o.finishReason() == FinishReason.CANCELLED) cancelled = true;
  }

  /** What it failed with, or null: an error first, then that it was cancelled. */
  OrlopException failure() {
    if (error != null) return error;
    return cancelled ? new CancelledException("the request was cancelled") : null;
  }

  Result result(RequestStatus status) {
    List<Sample> samples = new ArrayList<>(parts.length);
    for (Part part : parts) samples.add(part.sample());
    return new Result(List.copyOf(samples), promptLogprobs, promptTop, embedding, status);
  }

  private static int[] joined(int[] a, int[] b) {
    int[] c = Arrays.copyOf(a, a.length + b.length);
    System.arraycopy(b, 0, c, a.length, b.length);
    return c;
  }

  private static float[] joined(float[] a, float[] b) {
    float[] c = Arrays.copyOf(a, a.length + b.length);
    System.arraycopy(b, 0, c, a.length, b.length);
    return c;
  }
}
