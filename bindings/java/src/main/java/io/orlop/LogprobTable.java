package io.orlop;

/**
 * The best tokens of each position and their natural logarithms of probability, row by row: best
 * first, or by id where the whole vocabulary was asked for.
 */
public final class LogprobTable {
  private final int rows;
  private final int columns;
  private final int[] tokens; // [rows, columns]
  private final float[] logprobs; // [rows, columns]

  LogprobTable(int rows, int columns, int[] tokens, float[] logprobs) {
    this.rows = rows;
    this.columns = columns;
    this.tokens = tokens;
    this.logprobs = logprobs;
  }

  /**
   * How many positions it has.
   *
   * @return the number of rows
   */
  public int rows() {
    return rows;
  }

  /**
   * How many tokens each position has.
   *
   * @return the number of columns
   */
  public int columns() {
    return columns;
  }

  /**
   * The id of a token.
   *
   * @param row the position
   * @param column its rank, 0 the best
   * @return the id
   */
  public int token(int row, int column) {
    return tokens[index(row, column)];
  }

  /**
   * The logarithm of a token's probability.
   *
   * @param row the position
   * @param column its rank, 0 the best
   * @return the natural logarithm, of the raw model distribution
   */
  public float logprob(int row, int column) {
    return logprobs[index(row, column)];
  }

  int[] tokens() {
    return tokens;
  }

  float[] logprobs() {
    return logprobs;
  }

  private int index(int row, int column) {
    java.util.Objects.checkIndex(row, rows);
    return row * columns + java.util.Objects.checkIndex(column, columns);
  }
}
