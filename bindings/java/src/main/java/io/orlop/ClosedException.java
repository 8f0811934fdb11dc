package io.orlop;

/** An object was used after it was closed, or closed while a thread waited in it. */
public final class ClosedException extends IllegalStateException {
  private static final long serialVersionUID = 1L;

  ClosedException(String message) {
    super(message);
  }
}
