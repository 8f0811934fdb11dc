package io.orlop;

/** The statuses that are no errors. */
final class Status {
  private Status() {}

  static final int OK = 0;
  static final int TIMEOUT = 1;
  static final int END = 2;
}
